"""What stands out in a table of head statistics, said in sentences. Every sentence is read off the numbers."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, isclose, log
from typing import NamedTuple

import pandas as pd

from attnkit.labels import number, words, words_and_unit

FLAT = 0.99  # normalized entropy above which a head is uniform within 1 %
CLOSE = 0.01  # relative departure from uniform attention up to which none is spoken of
MARKED = 1.5  # times uniform attention, from which a head is said to look at a place
SELECTIVE = log(1.25)  # selectivity from which a head is said to tell its own token from the others: 1.25 to 1
NAMED = 8  # heads that one sentence names

PLACES = {
    "self_weight": "the token itself",
    "previous_weight": "the previous token",
    "next_weight": "the next token",
    "first_weight": "the first token",
    "last_weight": "the last token",
    "special_weight": "special tokens",
    "duplicate_weight": "earlier copies of the token",
    "induction_weight": "what followed an earlier copy of the token",
}

Head = tuple[int, int]  # layer, head


class Value(NamedTuple):
    mean: float
    uniform: float  # the same under uniform attention; NaN where that is not said


Group = dict[str, dict[Head, Value]]  # by statistic and head: the values of one group of sequences


@dataclass(frozen=True)
class Finding:
    topic: str
    text: str


def find(long: pd.DataFrame, differences: pd.DataFrame | None = None) -> list[Finding]:
    """The findings of `head_stats_long`, and of the table of differences between groups where there is one."""
    groups = by_group(long)
    everything = groups.get("all", {})
    found = [say(everything) for say in (sharpness, places, own_token, tokens, position)]
    if differences is not None:
        found.append(classes(groups, differences))
    return [finding for finding in found if finding]


def by_group(long: pd.DataFrame) -> dict[str, Group]:
    """`head_stats_long`, to look things up in."""
    groups: dict[str, Group] = {}
    columns = (long[name].tolist() for name in ("group", "statistic", "layer", "head", "mean", "uniform"))
    for group, statistic, layer, head, mean, uniform in zip(*columns, strict=True):
        groups.setdefault(group, {}).setdefault(statistic, {})[layer, head] = Value(mean, uniform)
    return groups


def sharpness(values: Group) -> Finding | None:
    flatness = means(values, "entropy_normalized")
    keys = values.get("effective_keys")
    if not flatness or not keys:
        return None
    flat = [head for head in flatness if flatness[head] > FLAT]
    if len(flat) == len(flatness):
        text = f"All {len(flat)} heads attend uniformly within 1 %: none looks anywhere in particular."
        return Finding("Sharpness", text)
    sharpest = min(flatness, key=flatness.__getitem__)
    text = (
        f"{at_start(sharpest)} is the sharpest: on average it attends as if to {number(keys[sharpest].mean)} keys, "
        f"where uniform attention has {number(keys[sharpest].uniform)}. "
    )
    some = f"{len(flat)} of {len(flatness)} heads are uniform within 1 %: {names(flat)}."
    return Finding("Sharpness", text + (some if flat else "No head is uniform within 1 %."))


def places(values: Group) -> Finding | None:
    weights = [
        (ratio, head, place)
        for statistic, place in PLACES.items()
        for head, ratio in ratios(values, statistic).items()
        if ratio > 0
    ]
    if not weights:
        return None
    marked: dict[str, list[tuple[float, Head]]] = {}
    for ratio, head, place in sorted(weights, reverse=True):
        if ratio >= MARKED:
            marked.setdefault(place, []).append((ratio, head))
    if marked:
        parts = []
        for place, found in marked.items():
            ratio, head = found[0]
            more = f", and {len(found) - 1} more" if len(found) > 1 else ""
            parts.append(f"{name(head)} on {place} ({times(ratio)}{more})")
        text = f"Heads whose weight is at least {MARKED} times what uniform attention gives: {'; '.join(parts)}."
        return Finding("Places", text)
    text = "No head looks at a fixed place, such as its own, the previous or the first token: "
    ratio, head, place = max(weights, key=lambda weight: abs(log(weight[0])))
    if isclose(ratio, 1, rel_tol=CLOSE):
        return Finding("Places", text + "every such weight is what uniform attention gives, within 1 %.")
    return Finding(
        "Places",
        f"{text}no such weight reaches {MARKED} times what uniform attention gives. The furthest from it is that of "
        f"{name(head)} on {place}, with {times(ratio)}.",
    )


def own_token(values: Group) -> Finding | None:
    selectivity = means(values, "selectivity")
    if not selectivity:
        return None
    high, low = max(selectivity, key=selectivity.__getitem__), min(selectivity, key=selectivity.__getitem__)
    parts = []
    if selectivity[high] >= SELECTIVE:
        ratio = times(exp(selectivity[high]))
        parts.append(f"{at_start(high)} gathers from tokens like its own: each gets {ratio} the weight of another.")
    if selectivity[low] <= -SELECTIVE:
        ratio = times(exp(selectivity[low]))
        parts.append(f"{at_start(low)} looks away from tokens like its own: each gets {ratio} the weight of another.")
    return Finding("Own token", " ".join(parts) or "No head tells tokens like its own from the others by 25 % or more.")


def tokens(values: Group) -> Finding | None:
    kinds = [statistic for statistic in values if statistic.startswith("token_weight[")]
    leaning = [(ratio, head, kind) for kind in kinds for head, ratio in ratios(values, kind).items()]
    if not leaning:
        return None
    ratio, head, kind = max(leaning)
    if ratio <= 1 + CLOSE:
        return Finding("Tokens", "No head leans to a token: each gets what uniform attention gives, within 1 %.")
    mean, uniform = values[kind][head]
    token = words(kind).removeprefix("Weight on ")
    return Finding(
        "Tokens",
        f"{at_start(head)} leans most to one token: {share(mean)} of its weight is on {token}, where uniform attention "
        f"would put {share(uniform)}.",
    )


def position(values: Group) -> Finding | None:
    shares = means(values, "positional_share")
    if not shares:
        return None
    high, low = max(shares, key=shares.__getitem__), min(shares, key=shares.__getitem__)
    text = f"Position alone explains {share(shares[high])} of how {name(high)} departs from uniform attention"
    if high == low:
        return Finding("Position or content", f"{text}.")
    text += (
        f", the most of all heads, and {share(shares[low])} for {name(low)}, the least: that one follows the content."
    )
    single, mean = means(values, "entropy").get(low), means(values, "entropy_of_mean").get(low)
    if single is not None and mean is not None:
        text += f" Its map has an entropy of {number(single)} nats on one sequence, {number(mean)} averaged over all."
    return Finding("Position or content", text)


def classes(groups: dict[str, Group], differences: pd.DataFrame) -> Finding | None:
    """The largest difference between two labels.

    Only of statistics that uniform attention would give alike in both: the others differ by the data alone.
    """
    found = []
    columns = (differences[name].tolist() for name in ("group_a", "group_b", "statistic", "layer", "head", "cohens_d"))
    for a, b, statistic, layer, head, d in zip(*columns, strict=True):
        if a.startswith("label=") and abs(d) >= 0:  # NaN is not
            there = [groups[group][statistic][layer, head] for group in (a, b)]
            if isclose(there[0].uniform, there[1].uniform, rel_tol=1e-6, abs_tol=1e-9):
                found.append((abs(d), (layer, head), statistic, (a, b), there))
    if not found:
        return None
    d, place, statistic, pair, there = max(found, key=lambda difference: difference[0])
    first, second = (
        f"{number(value.mean)} on “{group.removeprefix('label=')}”" for group, value in zip(pair, there, strict=True)
    )
    measured = words_and_unit(statistic).lower()
    return Finding(
        "Classes",
        f"{at_start(place)} differs most between classes: its {measured} is {first} and {second}, {d:.1f} standard "
        "deviations apart.",
    )


def means(values: Group, statistic: str) -> dict[Head, float]:
    return {head: value.mean for head, value in values.get(statistic, {}).items()}


def ratios(values: Group, statistic: str) -> dict[Head, float]:
    """How many times what uniform attention gives."""
    return {head: v.mean / v.uniform for head, v in values.get(statistic, {}).items() if v.uniform > 0}


def name(head: Head) -> str:
    return f"layer {head[0]}, head {head[1]}"


def at_start(head: Head) -> str:
    return name(head).capitalize()


def names(heads: Iterable[Head]) -> str:
    """Layer by layer: "layer 0, heads 0 and 3; layer 1, head 2"."""
    heads = sorted(heads)
    by_layer: dict[int, list[str]] = {}
    for layer, head in heads[:NAMED]:
        by_layer.setdefault(layer, []).append(str(head))
    parts = [
        f"layer {layer}, " + (f"head {here[0]}" if len(here) == 1 else f"heads {', '.join(here[:-1])} and {here[-1]}")
        for layer, here in by_layer.items()
    ]
    more = f"; and {len(heads) - NAMED} more" if len(heads) > NAMED else ""
    return "; ".join(parts) + more


def times(ratio: float) -> str:
    return f"{ratio:.2f} times" if ratio < 10 else f"{ratio:.0f} times"


def share(value: float) -> str:
    return f"{100 * value:.0f}\N{NO-BREAK SPACE}%" if value >= 0.1 else f"{100 * value:.1f}\N{NO-BREAK SPACE}%"
