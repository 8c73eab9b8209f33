"""The notebook's loop that the benchmark runs must find what the package finds."""

import numpy as np

from attnkit.data import Batch
from attnkit.headstats import collect
from attnkit.measures import applicable
from attnkit.tables import long_frame
from attnkit.tasks import MAJORITY
from benchmarks import notebook
from benchmarks.training import article_model


def test_the_notebook_finds_our_numbers():
    """The first 64 sequences of 16: among them one of zeros alone, where no key is unlike."""
    model = article_model().eval()
    x, y = MAJORITY.enumerate(16, 0, 64)
    batch = Batch(x, labels=y)

    theirs = notebook.loop(model, [batch])

    stats = collect(model, [batch], MAJORITY.vocab)
    long = long_frame(stats, applicable(MAJORITY.vocab), MAJORITY.classes, population=True)
    ours = long[long["group"] == "all"].pivot(index=["layer", "head"], columns="statistic", values="mean")
    assert len(theirs.columns) == len(applicable(MAJORITY.vocab)) - 1  # all but the output norm
    np.testing.assert_allclose(theirs.to_numpy(), ours[theirs.columns].to_numpy(), rtol=1e-4)
