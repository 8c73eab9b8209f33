"""Does training succeed, whatever the seed? `python -m benchmarks.seeds`"""

from collections.abc import Callable, Iterator
from statistics import median

from attnkit.data import task_sets
from attnkit.tasks import MAJORITY
from attnkit.train import TrainConfig, measure, train
from benchmarks import Row
from benchmarks.training import DATA, article_model

SEEDS = 20


def rows(on_seed: Callable[[int, float], None] = lambda seed, accuracy: None) -> Iterator[Row]:
    sets = task_sets(MAJORITY, DATA)
    accuracies = []
    for seed in range(SEEDS):
        model = article_model(seed)
        train(model, *sets, TrainConfig(seed=seed))
        accuracies.append(measure(model, MAJORITY, DATA)["exhaustive_accuracy"])
        on_seed(seed, accuracies[-1])
    what = f"accuracy on all {MAJORITY.count(DATA.length):,} sequences, over {SEEDS} seeds"
    yield Row(what, f"median {median(accuracies):.3%}, worst {min(accuracies):.3%}")


if __name__ == "__main__":
    for row in rows(lambda seed, accuracy: print(f"seed {seed:2d}  {accuracy:.3%}", flush=True)):
        print(row.what, row.result, sep="\n  ")
