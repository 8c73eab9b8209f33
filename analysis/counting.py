"""How does each head count the ones of a majority sequence?

    python -m analysis.counting [--split exhaustive | --data FILE]

holds the weight that every query puts on the ones against the closed forms that a way of counting would give, and
says which of them the head follows, or that it is undecided.
"""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from analysis.counting_report import figures
from analysis.report import write_report
from analysis.study import write_study
from analysis.subject import open_subject, parser
from attnkit import cli
from attnkit.ablation import of_each_length, own_tokens
from attnkit.data import Batch
from attnkit.model import TinyTransformer
from attnkit.observe import AttentionCall, observe
from attnkit.tasks import MAJORITY

EXPLAINED = 0.9  # R² from which a way is said to be the head's own
AHEAD = 0.5  # the next best way must leave twice as much unexplained
ROUNDING = 1e-6  # of the variance: less is not worth telling apart
IDLE = 0.05  # share of what the layer says of the count, below which a head says nothing
LEAST, MOST = np.log(1.1), np.log(1000.0)  # a smaller preference is none, a larger one looks the same

Predict = Callable[[np.ndarray, np.ndarray, int, float], np.ndarray]  # query's token, ones, T, preference -> weight


def preferring(preference: np.ndarray | float, ones: np.ndarray, T: int) -> np.ndarray:
    """The weight on the ones if each weighs e^preference times what a zero weighs."""
    ratio = np.exp(preference)
    return ones * ratio / (ones * ratio + (T - ones))


FORMS: dict[str, tuple[Predict, bool]] = {  # way of counting: the weight on the ones, and whether it has a preference
    "uniform": (lambda own, ones, T, _: preferring(0.0, ones, T), False),
    "leaning": (lambda own, ones, T, c: preferring(c, ones, T), True),
    "clustering": (lambda own, ones, T, c: preferring(c * (2 * own - 1), ones, T), True),  # Behrens et al. 2024
    "majority": (lambda own, ones, T, c: preferring(np.where(2 * ones > T, c, -c), ones, T), True),
    "readout": (lambda own, ones, T, _: ones / (ones + 1), False),  # Golkar et al. 2024: one more key, weighed alike
}
WAYS = (*FORMS, "positional")


@dataclass(frozen=True)
class Counts:
    """Sums over the sequences of one length T, float64. w: the weight of a query on the ones; x: 1 where one stands."""

    cells: Tensor  # (3, L, H, T + 1, 2): rows, Σ w, Σ w², by the number of ones and the query's own token
    maps: Tensor  # (L, H, T, T): Σ p
    crossed: Tensor  # (L, H, T, T): Σ w_i x_j
    tokens: Tensor  # (T, T): Σ x_i x_j
    said: Tensor  # (L, H, T + 1, D): Σ of what the head adds to the mean token, by the number of ones
    sequences: Tensor  # (T + 1,)

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


def sums_of(calls: Sequence[AttentionCall], tokens: Tensor) -> Counts:
    """The sums of sequences of one length (B, T), 0 and 1, without padding; a call for each layer."""
    T, x, ones = tokens.shape[1], tokens.double(), tokens.sum(dim=1)
    cell = (2 * ones[:, None] + tokens).flatten()  # (B·T,)
    weight, maps, crossed, said = [], [], [], []
    for call in calls:
        p = call.weights.double()
        w = (p * x[:, None, None, :]).sum(dim=-1)  # (B, H, T)
        weight.append(w)
        maps.append(p.sum(dim=0))
        crossed.append(torch.einsum("bhi,bj->hij", w, x))
        assert call.w_o is not None
        added = torch.einsum("bhd,hde->bhe", call.output.mean(dim=2).double(), call.w_o.double())
        said.append(added.new_zeros(T + 1, *added.shape[1:]).index_add(0, ones, added))
    w = torch.stack(weight).transpose(1, 2).flatten(2)  # (L, H, B·T)
    values = torch.stack([torch.ones_like(w), w, w.square()])
    cells = w.new_zeros(*values.shape[:-1], 2 * (T + 1)).index_add(-1, cell, values).unflatten(-1, (T + 1, 2))
    sums = [cells, torch.stack(maps), torch.stack(crossed), x.T @ x, torch.stack(said).transpose(1, 2)]
    return Counts(*[t.cpu() for t in (*sums, torch.bincount(ones, minlength=T + 1).double())])


@torch.no_grad()
def count(model: TinyTransformer, batches: Iterable[Batch]) -> dict[int, Counts]:
    """The sums of all sequences, by length."""
    device = next(model.parameters()).device
    found: dict[int, Counts] = {}
    for batch in batches:
        for T, chosen in of_each_length(batch).items():
            tokens = torch.from_numpy(own_tokens(batch, chosen, T)).to(device)
            calls: list[AttentionCall] = []
            with observe(model, calls.append):
                model(tokens)
            part = sums_of(calls, tokens)
            found[T] = found[T] + part if T in found else part
    return found


# ---------------------------------------------------------------- the verdict


def errors(counts: dict[int, Counts], head: tuple[int, int], predict: Predict, c: float) -> float:
    """Σ (w − predicted)², every sequence counted once: a row of T counts 1/T."""
    total = 0.0
    for T, sums in counts.items():
        n, s1, s2 = (sums.cells[k][head].numpy() for k in range(3))
        guess = predict(np.arange(2)[None, :], np.arange(T + 1)[:, None], T, c)
        total += float((s2 - 2 * guess * s1 + n * guess**2).sum()) / T
    return max(total, 0.0)


def positional_errors(counts: dict[int, Counts], head: tuple[int, int]) -> float:
    """The same for a head that always shows its mean map."""
    total = 0.0
    for T, sums in counts.items():
        mean = sums.maps[head] / sums.sequences.sum()
        predicted = (mean @ sums.tokens * mean).sum() - 2 * (mean * sums.crossed[head]).sum()
        total += float(sums.cells[2][head].sum() + predicted) / T
    return max(total, 0.0)


def fit(counts: dict[int, Counts], head: tuple[int, int], predict: Predict) -> tuple[float, float]:
    """The preference, at least 1.1 to 1 either way, with the least error, and that error."""
    found = [
        minimize_scalar(lambda c: errors(counts, head, predict, c), bounds=bounds, method="bounded")
        for bounds in ((LEAST, MOST), (-MOST, -LEAST))
    ]
    best = min(found, key=lambda result: result.fun)
    return float(best.x), float(best.fun)


def shares(counts: dict[int, Counts]) -> np.ndarray:
    """(L, H): how strongly what the head adds to the mean token depends on the number of ones, over its layer's whole.

    The root mean square, over the sequences, of E[added | ones] − E[added], divided by that of all heads together.
    """
    n = torch.cat([sums.sequences for sums in counts.values()])
    known = n > 0
    said = torch.cat([sums.said for sums in counts.values()], dim=2)[:, :, known] / n[known, None]  # (L, H, cells, D)
    said = torch.cat([said, said.sum(dim=1, keepdim=True)], dim=1)
    chance = n[known, None] / n.sum()
    size = ((said - (said * chance).sum(dim=2, keepdim=True)).square() * chance).sum(dim=(2, 3)).sqrt()
    return (size[:, :-1] / size[:, -1:].clamp(min=torch.finfo(size.dtype).tiny)).numpy()


def ways_frame(counts: dict[int, Counts]) -> pd.DataFrame:
    """`counting`: one row per layer, head and way of counting.

    `preference`: the fitted ratio of weights, 1 for none. `r2`: the share of the variance of the weight on the ones,
    over all queries of all sequences, that the way explains. Of the head: `share`, see `shares`; `verdict`, its way,
    `idle` or `undecided`; and `margin`, 1 − what the best way leaves unexplained / what the next best leaves (for an
    idle head how far its share is below the 5 %, as a part of them).
    """
    rows = []
    of_layer = shares(counts)
    for head in np.ndindex(of_layer.shape):

        def constant(own: np.ndarray, ones: np.ndarray, T: int, c: float) -> np.ndarray:
            return np.full((1, 1), c)

        weights = [(sums.cells[k][head].sum() / T for k in range(2)) for T, sums in counts.items()]
        n, w = (sum(map(float, part)) for part in zip(*weights, strict=True))
        whole = errors(counts, head, constant, w / n)
        left, ratios = {}, {}
        for way, (predict, fitted) in FORMS.items():
            c, left[way] = fit(counts, head, predict) if fitted else (0.0, errors(counts, head, predict, 0.0))
            ratios[way] = np.exp(c)
        left["positional"], ratios["positional"] = positional_errors(counts, head), 1.0
        r2 = {way: 1 - error / whole if whole > 0 else np.nan for way, error in left.items()}
        verdict, margin = decide(r2, float(of_layer[head]))
        rows += [(*head, way, ratios[way], r2[way], of_layer[head], verdict, margin) for way in WAYS]
    return pd.DataFrame(rows, columns=["layer", "head", "way", "preference", "r2", "share", "verdict", "margin"])


def decide(r2: dict[str, float], share: float) -> tuple[str, float]:
    """The verdict and its margin."""
    if share < IDLE:
        return "idle", 1 - share / IDLE
    left = {way: max(1 - explained, ROUNDING) for way, explained in r2.items()}
    # A mean map explains all that uniform attention does: it is a way of its own only if it explains much more.
    if "positional" in left and left["positional"] > (1 - AHEAD) * left["uniform"]:
        del left["positional"]
    best, following = sorted(left, key=lambda way: left[way])[:2]
    margin = 1 - left[best] / left[following]
    return (best if left[best] <= 1 - EXPLAINED and margin >= AHEAD else "undecided"), margin


def curves_frame(counts: dict[int, Counts], ways: pd.DataFrame) -> pd.DataFrame:
    """`counting_curves`: the mean weight on the ones by length, number of ones and the query's own token, measured and
    as each way foretells it; `n` rows."""
    frames = []
    preference = ways.set_index(["layer", "head", "way"])["preference"]
    for T, sums in counts.items():
        L, H = sums.maps.shape[:2]
        ones, own = (axis.ravel() for axis in np.indices((T + 1, 2)))
        for layer, head in np.ndindex(L, H):
            n, s1 = (sums.cells[k][layer, head].numpy().ravel() for k in range(2))
            frame = pd.DataFrame({"layer": layer, "head": head, "length": T, "ones": ones, "token": own, "n": n})
            frame["measured"] = s1 / np.maximum(n, 1)
            for way, (predict, _) in FORMS.items():
                frame[way] = predict(own, ones, T, np.log(preference[layer, head, way]))
            # By position alone: over all places of the ones, with one of them on the query if that is one.
            itself = float(sums.maps[layer, head].diagonal().mean() / sums.sequences.sum())
            frame["positional"] = itself * own + (1 - itself) * (ones - own) / max(T - 1, 1)
            frames.append(frame[n > 0])
    return pd.concat(frames, ignore_index=True).astype({"n": int})


def main(argv: list[str] | None = None) -> None:
    args = parser("analysis.counting", "How does each head count the ones of a majority sequence?").parse_args(argv)
    subject = open_subject(args)
    if subject.info.task.name != MAJORITY.name:
        raise ValueError(f"task: got {subject.info.task.name!r}; the ways to count are those of the majority task")
    started = time.perf_counter()
    counts = count(subject.model, subject.batches())
    seconds = time.perf_counter() - started
    ways = ways_frame(counts)
    curves = curves_frame(counts, ways)
    n = int(sum(float(sums.sequences.sum()) for sums in counts.values()))
    record = subject.record() | {"sequences": n, "seconds": seconds}
    write_study(subject.out, "counting", {"counting": ways, "counting_curves": curves}, record, figures)
    print(f"{n:,} sequences in {seconds:.1f} s")
    print(f"report: {write_report(subject.out)}")


if __name__ == "__main__":
    sys.exit(cli.run(main))
