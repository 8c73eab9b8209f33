"""The section of the report that tells of each head what it does and what is lost without it.

Both are of the same weights and sequences: the tables of `analysis.head_importance`.
"""

from math import exp

import pandas as pd

from analysis.findings import (
    FLAT,
    MARKED,
    PLACES,
    SELECTIVE,
    Finding,
    Group,
    Head,
    at_start,
    by_group,
    means,
    ratios,
    share,
    times,
)
from analysis.importance_report import answers, changes, of_method
from analysis.page import Folder, Section
from analysis.text_importance_report import costs, measured_first
from attnkit.labels import number, words

MANY = 16  # heads, up to which each has a sentence of its own; of more, the most costly ones


def one_by_one(folder: Folder) -> Section | None:
    table = folder.table("head_importance")
    if table is None:
        return None
    zero = of_method(table, "zero")
    described = folder.table("head_importance_statistics")
    values = {} if described is None else by_group(described).get("all", {})
    order = ["accuracy_drop", "loss_increase"] if "answers_lost" in table else [measured_first(table)]
    costly = zero.sort_values(order, ascending=False, kind="stable").index
    chosen = sorted(costly[:MANY]) if len(costly) <= MANY else list(costly[:MANY])
    found = [
        Finding(at_start(head), " ".join(filter(None, [does(values, head), without(zero.loc[head])])))
        for head in chosen
    ]
    text = "" if len(costly) <= MANY else f"The {MANY} most costly of {len(costly)} heads."
    return Section("one-by-one", "Head by head", text, findings=found)


def does(values: Group, head: Head) -> str:
    """What a head does, from its statistics; "" where none are known."""
    flatness = means(values, "entropy_normalized")
    if head not in flatness:
        return ""
    if flatness[head] > FLAT:
        return "It attends uniformly within 1 %."
    parts = []
    of_places = {place: ratios(values, s).get(head, 0.0) for s, place in PLACES.items() if s in values}
    place = max(of_places, key=lambda p: of_places[p], default=None)
    if place and of_places[place] >= MARKED:
        parts.append(f"looks at {place} ({times(of_places[place])} what uniform attention gives)")
    own = means(values, "selectivity").get(head, 0.0)
    if abs(own) >= SELECTIVE:
        verb = "gathers from" if own > 0 else "looks away from"
        parts.append(f"{verb} tokens like its own (each gets {times(exp(own))} the weight of another)")
    tokens = {s: ratios(values, s).get(head, 0.0) for s in values if s.startswith("token_weight[")}
    token = max(tokens, key=lambda s: tokens[s], default=None)
    if token and tokens[token] >= exp(SELECTIVE):
        mean, uniform = values[token][head]
        which = words(token).removeprefix("Weight on ")
        parts.append(f"leans to {which} ({share(mean)} of its weight, where {share(uniform)} would be uniform)")
    if not parts:
        keys = values["effective_keys"][head]
        parts.append(f"looks nowhere in particular, as if to {number(keys.mean)} of {number(keys.uniform)} keys")
    return f"It {' and '.join(parts)}."


def without(row: pd.Series) -> str:
    lost = f"{answers(row)} and {changes(row['loss_increase'])}" if "answers_lost" in row else costs(row)
    return f"Without it, {lost}."
