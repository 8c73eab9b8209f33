"""Train a classifier of a synthetic task and write its checkpoint: `python -m attnkit.train`.

The defaults are the article's: its data, its model, its twelve epochs.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from attnkit import cli
from attnkit.card import model_card
from attnkit.checkpoint import Checkpoint, TaskInfo, check_folder, copied, save_checkpoint, versions
from attnkit.data import Batch, DataConfig, task_dataset, task_sets
from attnkit.model import ModelConfig, TinyTransformer
from attnkit.snapshots import log_steps
from attnkit.tasks import MAJORITY, TASKS, Task, get_task, share_seen

ARTICLE_SIZES = {"d_model": 32, "n_heads": 4, "d_ff": 64, "n_layers": 2}
AT_A_TIME = 1024  # sequences that are read at once where nothing is learnt
PER_THREAD = 64 * 16 * 32  # numbers in a step's hidden state, (B, T, D), that are worth a thread of their own


@dataclass(frozen=True)
class TrainConfig:
    epochs: int = 12  # passes over the training sequences
    lr: float = 1e-3  # Adam's learning rate
    batch_size: int = 64  # sequences per step
    seed: int = 0  # draws the first weights and the order of the sequences


@dataclass(frozen=True)
class Epoch:
    """What one pass over the training sequences gave; losses are mean cross-entropies in nats."""

    epoch: int  # counted from 1
    train_loss: float  # over the epoch's steps, each before its update
    train_accuracy: float  # the same
    test_loss: float  # after the epoch
    test_accuracy: float  # the same

    def __str__(self) -> str:
        accuracies = f"train acc {self.train_accuracy:.3f}  test acc {self.test_accuracy:.3f}"
        return f"epoch {self.epoch:2d}  loss {self.train_loss:.4f}  {accuracies}"


def new_model(config: ModelConfig, seed: int) -> TinyTransformer:
    """A model with the first weights of this seed; the caller's random state stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return TinyTransformer.from_config(config)


def train(
    model: TinyTransformer,
    train_set: Batch,
    test_set: Batch,
    config: TrainConfig | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
    on_step: Callable[[int], None] | None = None,
) -> list[Epoch]:
    """Train the model, in place and on its device, with Adam on the cross-entropy; it comes back in eval mode.

    `on_epoch` is handed each epoch as it ends, `on_step` the number of steps taken, from 0 on. The same model, data
    and configuration on the same machine give the same weights to the bit. Raises ValueError for sequences or labels
    that the model does not take, and where the loss is no longer finite.
    """
    config = config or TrainConfig()
    device = next(model.parameters()).device
    train_set, test_set = (checked(model, *named).to(device) for named in (("train", train_set), ("test", test_set)))
    order = torch.Generator().manual_seed(config.seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr, fused=True)
    history = []
    if on_step:
        on_step(0)
    with threads_for(model, train_set.tokens[: config.batch_size]):
        for number in range(1, config.epochs + 1):
            shuffled = train_set[torch.randperm(len(train_set), generator=order).to(device)]
            batches = list(shuffled.split(config.batch_size))
            told = counted(batches, on_step, (number - 1) * len(batches)) if on_step else batches
            seen = run_epoch(model, optimizer, told)
            trained = mean_scores([score(seen, labels_of(shuffled))])
            epoch = Epoch(number, *trained, *evaluate(model, test_set.split(AT_A_TIME)))
            if not math.isfinite(epoch.train_loss + epoch.test_loss):
                raise ValueError(f"epoch {number}: the loss is no longer finite; try a lr below {config.lr:g}")
            history.append(epoch)
            if on_epoch:
                on_epoch(epoch)
    model.eval()
    return history


def run_epoch(model: TinyTransformer, optimizer: torch.optim.Optimizer, batches: Iterable[Batch]) -> Tensor:
    """Take one step per batch and return the logits that the steps saw; nothing in here waits for the device."""
    model.train()
    seen = []
    for batch in batches:
        optimizer.zero_grad()
        logits, _ = model(batch.tokens, batch.mask)
        cross_entropy(logits, labels_of(batch)).backward()
        optimizer.step()
        seen.append(logits.detach())
    return torch.cat(seen)


def counted(batches: Iterable[Batch], on_step: Callable[[int], None], before: int) -> Iterator[Batch]:
    """The same batches; when the next one is asked for, the step of the last has been taken."""
    for step, batch in enumerate(batches, start=before + 1):
        yield batch
        on_step(step)


@torch.inference_mode()
def evaluate(model: TinyTransformer, batches: Iterable[Batch]) -> tuple[float, float]:
    """Return the mean cross-entropy in nats and the accuracy, 0 to 1, over labelled sequences.

    The model is read in eval mode and left as it was. Raises ValueError where there are no sequences or no labels.
    """
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    try:
        here = (batch.to(device) for batch in batches)
        return mean_scores([score(model(batch.tokens, batch.mask)[0], labels_of(batch)) for batch in here])
    finally:
        model.train(was_training)


Scores = tuple[Tensor, Tensor, int]  # Σ cross-entropy, correct answers, sequences


def score(logits: Float[Tensor, "B C"], labels: Int[Tensor, "B"]) -> Scores:
    correct = (logits.argmax(dim=1) == labels).sum()
    return cross_entropy(logits, labels, reduction="sum"), correct, len(labels)


def mean_scores(scores: Sequence[Scores]) -> tuple[float, float]:
    if not scores:
        raise ValueError("batches: there are no sequences to evaluate")
    losses, correct, n = zip(*scores, strict=True)
    return float(torch.stack(losses).sum()) / sum(n), int(torch.stack(correct).sum()) / sum(n)


def labels_of(batch: Batch) -> Int[Tensor, "B"]:
    if batch.labels is None:
        raise ValueError("labels: got None; these sequences need one class each")
    return batch.labels


def checked(model: TinyTransformer, name: str, data: Batch) -> Batch:
    """Return the sequences, all of which the model takes: a value that is not allowed would take a GPU down."""
    if not len(data):
        raise ValueError(f"{name}_set: there are no sequences")
    model.eval().check(data.tokens, data.mask)
    low, high = labels_of(data).aminmax()
    if low < 0 or high >= model.config.n_classes:
        raise ValueError(f"{name}_set: labels run from {low} to {high}, allowed is 0 to {model.config.n_classes - 1}")
    return data


@contextmanager
def threads_for(model: TinyTransformer, tokens: Int[Tensor, "B T"]) -> Iterator[None]:
    """As many threads as a step of this size keeps busy.

    With more, a step is no faster, and where other programs want the processor too, the threads mostly wait for
    each other: the article's step, for one, then takes several times as long.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, min(before, tokens.numel() * model.config.d_model // PER_THREAD)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def main(argv: Sequence[str] | None = None) -> None:
    args = parse(argv)
    task = get_task(args.task)
    data, config = cli.from_flags(args, DataConfig), cli.from_flags(args, TrainConfig)
    sizes = cli.from_flags(
        args, ModelConfig, vocab_size=len(task.vocab), max_len=data.length, n_classes=len(task.classes)
    )
    out = check_folder(getattr(args, "out", cli.PROJECT / "checkpoints" / task.name)).resolve()
    device = cli.pick_device(args.device)
    model = new_model(sizes, config.seed).to(device)
    record = {**asdict(config), "device": str(device)}
    info = Checkpoint(sizes, TaskInfo.of(task), data, record, versions=versions())
    history: list[Epoch] = []
    weights: Mapping[str, Tensor] = model.state_dict()
    steps = -(-data.n_train // config.batch_size)  # of an epoch
    wanted = set(log_steps(config.epochs * steps, args.snapshots)) if args.snapshots else set()
    kept: dict[int, dict[str, Tensor]] = {}

    def on_step(step: int) -> None:
        if step in wanted:
            kept[step] = copied(model.state_dict())

    def on_epoch(epoch: Epoch) -> None:
        nonlocal history, weights
        history, weights = [*history, epoch], copied(model.state_dict())
        with bar.external_write_mode(file=sys.stdout):
            print(epoch, flush=True)
        bar.update()

    try:
        train_set, test_set = task_sets(task, data)
        with cli.progress(total=config.epochs, unit="epoch") as bar:
            train(model, train_set, test_set, config, on_epoch, on_step if wanted else None)
        results = measure(model, task, data) | {"share_seen": share_seen(test_set.tokens, train_set.tokens)}
        print(*in_words(results), sep="\n")
        save(out, model, replace(info, results=results), history, kept)
        print(f"saved {out}")
    except KeyboardInterrupt as stop:
        if not history:
            raise cli.Interrupted.again(stop, "interrupted before the first epoch ended; nothing was written") from None
        model.load_state_dict(weights)
        until = {step: weights for step, weights in kept.items() if step <= len(history) * steps}
        saved = save(out.with_name(out.name + "-interrupted"), model, info, history, until)
        raise cli.Interrupted.again(stop, f"interrupted; the model of epoch {len(history)} is in {saved}") from None


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = cli.parser("attnkit.train", "Train a classifier of a synthetic task and write its checkpoint.")
    parser.add_argument("--task", choices=TASKS, default=MAJORITY.name, help="what is learnt")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        default=argparse.SUPPRESS,
        help="the checkpoint's folder (default: checkpoints/TASK beside this code)",
    )
    cli.add_device(parser)
    training = parser.add_argument_group("training")
    cli.add_flags(training, TrainConfig)
    training.add_argument(
        "--snapshots",
        type=cli.whole_number(2),
        default=0,
        metavar="N",
        help="so many times also keep the weights: before the first step, after the last, at even ratios between",
    )
    cli.add_flags(parser.add_argument_group("model"), ModelConfig, ARTICLE_SIZES)
    cli.add_flags(parser.add_argument_group("data"), DataConfig)
    return parser.parse_args(argv)


def measure(model: TinyTransformer, task: Task, data: DataConfig) -> dict[str, int | float]:
    """Loss and accuracy on the test sequences and, where they can be enumerated, on all that there are."""
    results: dict[str, int | float] = {}
    for split in ("test", "exhaustive") if enumerable(task, data.length) else ("test",):
        dataset = task_dataset(task, data, split)
        loss, accuracy = evaluate(model, dataset.batches(AT_A_TIME))
        results |= {f"{split}_loss": loss, f"{split}_accuracy": accuracy, f"{split}_sequences": dataset.size or 0}
    return results


def enumerable(task: Task, length: int) -> bool:
    try:
        return task.count(length) > 0
    except ValueError:
        return False


Snapshots = Mapping[int, Mapping[str, Tensor]]  # by how many steps were taken: a state dict


def save(out: Path, model: TinyTransformer, info: Checkpoint, history: Sequence[Epoch], snapshots: Snapshots) -> Path:
    info = replace(info, snapshots=sorted(snapshots))
    results = in_words(info.results) or [f"Training was interrupted: this is the model of epoch {len(history)}."]
    card = model_card(info, model, "\n".join(f"- {line}" for line in results))
    return save_checkpoint(out, model, info, [asdict(epoch) for epoch in history], card, snapshots)


def in_words(results: Mapping[str, int | float]) -> list[str]:
    """One sentence per result."""
    if not results:
        return []
    sentences = []
    for split, what in (("test", "test sequences"), ("exhaustive", "sequences there are")):
        if f"{split}_accuracy" in results:
            accuracy, n = results[f"{split}_accuracy"], int(results[f"{split}_sequences"])
            sentences.append(f"{round(accuracy * n):,} of the {n:,} {what} answered correctly ({accuracy:.3%})")
        else:
            sentences.append("not tried on all sequences there are: of this length they are too many")
    return [*sentences, f"{results['share_seen']:.1%} of the test sequences also stand in the training set"]


if __name__ == "__main__":
    sys.exit(cli.run(main))
