"""How fast is training, next to the plain loop that an article would print? `python -m benchmarks.training`"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from attnkit.data import Batch, DataConfig, task_sets
from attnkit.model import ModelConfig, TinyTransformer
from attnkit.tasks import MAJORITY
from attnkit.train import ARTICLE_SIZES, TrainConfig, labels_of, new_model, train
from benchmarks import Row, side_by_side

DATA, TRAINING = DataConfig(), TrainConfig(epochs=2)
ROUNDS = 5


def rows() -> Iterator[Row]:
    """With one thread, where the plain loop is not in its own way, and with as many as torch takes by itself."""
    before = torch.get_num_threads()
    try:
        for threads in sorted({1, before}):
            yield measured(threads)
    finally:
        torch.set_num_threads(before)


def measured(threads: int) -> Row:
    torch.set_num_threads(threads)
    train_set, test_set = task_sets(MAJORITY, DATA)
    seconds = side_by_side(
        {
            "plain": lambda: plain_loop(article_model(), train_set, test_set),
            "attnkit": lambda: train(article_model(), train_set, test_set, TRAINING),
        },
        ROUNDS,
    )
    plain, ours = (1000 * seconds[name] / TRAINING.epochs for name in ("plain", "attnkit"))
    what = f"training, ms per epoch of {DATA.n_train:,} sequences, torch at {threads} thread{'s' * (threads > 1)}"
    return Row(what, f"plain loop {plain:.0f}, attnkit {ours:.0f}: {plain / ours:.2f} times as fast")


def article_model(seed: int = TRAINING.seed) -> TinyTransformer:
    vocab_size, n_classes = len(MAJORITY.vocab), len(MAJORITY.classes)
    sizes = ModelConfig(vocab_size=vocab_size, max_len=DATA.length, n_classes=n_classes, **ARTICLE_SIZES)
    return new_model(sizes, seed)


def plain_loop(model: TinyTransformer, train_set: Batch, test_set: Batch) -> None:
    """The same training as articles write it: a DataLoader, and numbers fetched after every step."""
    tensors = (TensorDataset(s.tokens, labels_of(s)) for s in (train_set, test_set))
    train_loader, test_loader = (DataLoader(t, batch_size=TRAINING.batch_size, shuffle=True) for t in tensors)
    optimizer = torch.optim.Adam(model.parameters(), lr=TRAINING.lr)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(1, TRAINING.epochs + 1):
        model.train()
        loss_sum, correct, test_correct = 0.0, 0, 0
        for x, y in train_loader:
            optimizer.zero_grad()
            logits, _ = model(x)
            loss = criterion(logits, y)
            loss.backward()
            optimizer.step()
            loss_sum += loss.item() * len(x)
            correct += int((logits.argmax(dim=1) == y).sum().item())
        model.eval()
        with torch.no_grad():
            for x, y in test_loader:
                test_correct += int((model(x)[0].argmax(dim=1) == y).sum().item())
        _ = f"epoch {epoch} {loss_sum / len(train_set)} {correct / len(train_set)} {test_correct / len(test_set)}"


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.result, sep="\n  ")
