"""Do two groups of sequences read differently? Welch's test over sequences, for every head and statistic.

Queries of one sequence depend on each other, so sequences are the observations; and with hundreds of tests some
look real by chance, so the p-values are adjusted over all heads and statistics (Benjamini & Hochberg 1995).
"""

from itertools import combinations

import numpy as np
import pandas as pd
from scipy import stats

KEYS = ["layer", "head", "statistic"]
MOST = 16  # predictions that are compared where there are no labels
LEAST = 2  # sequences on each side, below which there is no deviation to compare with


def difference_frame(long: pd.DataFrame, *, population: bool) -> pd.DataFrame:
    """The differences between each two labels (without any, two predictions), and between right and wrong answers.

    `long` is that of `tables.long_frame`.

    Columns: layer, head, statistic, group_a, group_b, n_a, n_b, `difference` (mean of a − mean of b), `cohens_d`
    (over the pooled deviation) and, unless these are all sequences there are, Welch's `ci_low`, `ci_high` (95 %),
    `p` and `p_adjusted`. Rows with fewer than two sequences on a side, or no deviation on both, are absent.
    """
    names = [str(group) for group in long["group"].unique()]
    labels = [name for name in names if name.startswith("label=")]
    if not labels:  # then by what the model says, unless it has a great many words for that
        labels = [name for name in names if name.startswith("predicted=")]
        labels = labels if len(labels) <= MOST else []
    pairs = [*combinations(labels, 2), ("correct", "wrong")]
    frames = [compare(long, a, b) for a, b in pairs]
    table = pd.concat(frames, ignore_index=True)
    if population:
        return table.drop(columns=["ci_low", "ci_high", "p"])
    adjusted = stats.false_discovery_control(table["p"]) if len(table) else []
    return table.assign(p_adjusted=adjusted)


def compare(long: pd.DataFrame, a: str, b: str) -> pd.DataFrame:
    """Welch's comparison of two groups, a row per head and statistic."""
    columns = [*KEYS, "n", "mean", "std"]
    sides = [long.loc[(long["group"] == group) & (long["n"] >= LEAST), columns] for group in (a, b)]
    both = sides[0].merge(sides[1], on=KEYS, suffixes=("_a", "_b"))
    both = both[both["std_a"] ** 2 + both["std_b"] ** 2 > 0].reset_index(drop=True)
    n_a, mean_a, std_a, n_b, mean_b, std_b = (both[f"{c}_{side}"].to_numpy() for side in "ab" for c in columns[-3:])
    variance_a, variance_b = std_a**2 / n_a, std_b**2 / n_b  # of the means
    error = np.sqrt(variance_a + variance_b)
    # Welch 1947: the degrees of freedom of a difference of means with unlike variances.
    share = variance_a / (variance_a + variance_b)
    freedom = 1 / (share**2 / (n_a - 1) + (1 - share) ** 2 / (n_b - 1))
    difference = mean_a - mean_b
    p = 2 * stats.t.sf(np.abs(difference) / error, freedom)
    half = stats.t.ppf(0.975, freedom) * error
    pooled = np.sqrt(((n_a - 1) * std_a**2 + (n_b - 1) * std_b**2) / (n_a + n_b - 2))
    table = both[KEYS].assign(
        group_a=a, group_b=b, n_a=n_a, n_b=n_b, difference=difference, cohens_d=difference / pooled
    )
    return table.assign(ci_low=difference - half, ci_high=difference + half, p=p)
