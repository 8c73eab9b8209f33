"""The section of the report that tells which heads do the same, read off the tables of `analysis.head_similarity`."""

from collections.abc import Iterator

import pandas as pd
from matplotlib.figure import Figure

from analysis.columns import Dictionary
from analysis.findings import Finding, Head, at_start, name
from analysis.page import Cell, Folder, Section, Table, measured_on, pictures, value_cell
from attnkit import similarity_plots
from attnkit.labels import number

FIGURES = {
    "similarity_clustered": (
        "Every two heads",
        "Left: how differently two heads divide their attention, the root of the Jensen–Shannon divergence in bits; 0 "
        "is the same, 1 is no key in common. The tree joins heads and groups at the height of their mean distance. "
        "Right, in the same order: how alike what they write is over all tokens, up to turning and scaling (linear "
        "CKA); 1 is the same.",
    ),
    "similarity_map": (
        "A map of the heads",
        "The nearer two heads, the more alike they look. No map of a plane is quite true; the stress says how much of "
        "the distances is lost.",
    ),
    "similarity_matching": (
        "Heads of two checkpoints",
        "How far each head of one training is from each of the other; the frames are the matching with the least sum "
        "in each layer.",
    ),
}
DICTIONARY = Dictionary(
    tables=("similarity", "similarity_between", "matching", "similarity_tree", "similarity_map"),
    columns={
        "cka": ("linear CKA of what the two heads write: 1 is the same up to turning and scaling", ""),
        "left": ("a head by its place among all, or of larger numbers the group of an earlier row", ""),
        "right": ("the head or group that it joins", ""),
        "distance": ("the mean JS distance at which they join", "√bits"),
        "heads": ("how many heads are in the group", "heads"),
        "x": ("the place on the map, to the right", "√bits"),
        "y": ("the place on the map, upwards", "√bits"),
        "stress": ("√(Σ (d − d̂)² / Σ d²) over all pairs, d̂ the distance on the map; 0 where the map is true", ""),
        "matching.head_a": ("the head of the first checkpoint", ""),
        "matching.head_b": ("the head of the second, in the same layer, that does the same", ""),
    },
)
MOST_ROWS = 200  # pairs that the page lists; similarity.csv has all


def figures(folder: Folder) -> Iterator[tuple[str, Figure]]:
    table, tree, places = (folder.table(f"similarity{part}") for part in ("", "_tree", "_map"))
    if table is not None and tree is not None and places is not None:
        yield "similarity_clustered", similarity_plots.clustered(table, tree)
        yield "similarity_map", similarity_plots.head_map(places)
    between, matched = folder.table("similarity_between"), folder.table("matching")
    if between is not None and matched is not None:
        yield "similarity_matching", similarity_plots.matching(between, matched)


def which_do_the_same(folder: Folder) -> Section | None:
    table = folder.table("similarity")
    if table is None:
        return None
    record = folder.record("similarity")
    found = [] if table.empty else [alike(table), apart(table), alone(table), otherwise(table)]
    figures = dict(FIGURES)
    matched, between = folder.table("matching"), folder.table("similarity_between")
    if matched is not None and between is not None and "against" in record:
        found.append(same_again(matched, between, record["against"]["checkpoint"]))
    else:
        del figures["similarity_matching"]  # of an earlier run
    nearest = table.sort_values("js_distance", kind="stable").head(MOST_ROWS)
    values = (nearest[column] for column in ("js_divergence", "js_distance", "cka"))
    rows = [
        [
            *(Cell(f"{layer}.{head}", 1000 * layer + head) for layer, head in (a, b)),
            *(value_cell(value, 0.0) for value in of_pair),
        ]
        for a, b, *of_pair in zip(*heads_of(nearest), *values, strict=True)
    ]
    caption = (
        "Every two heads"
        if len(rows) == len(table)
        else f"The {MOST_ROWS} pairs of {len(table):,} that look most alike"
    )
    headings = ["Head", "Head", "JS divergence (bits)", "JS distance", "Linear CKA"]
    return Section(
        "similarity",
        "Which heads do the same",
        f"{measured_on(folder, record)} Two heads can look at the same tokens and write different things, or write the "
        "same from different places; both are compared, on the same sequences.",
        findings=[finding for finding in found if finding],
        pictures=pictures(folder, figures),
        table=Table(caption, [(h, "") for h in headings], rows, 2, sortable=True),
    )


def heads_of(table: pd.DataFrame) -> tuple[list[Head], list[Head]]:
    first, second = (list(zip(table[f"layer_{s}"].tolist(), table[f"head_{s}"].tolist(), strict=True)) for s in "ab")
    return first, second


def both(table: pd.DataFrame, place: int) -> tuple[Head, Head]:
    first, second = heads_of(table.iloc[[place]])
    return first[0], second[0]


def alike(table: pd.DataFrame) -> Finding:
    place = int(table["js_distance"].to_numpy().argmin())
    a, b = both(table, place)
    row = table.iloc[place]
    return Finding(
        "Most alike",
        f"{at_start(a)} and {name(b)} look most alike: their JS distance is {number(row['js_distance'])} of at most 1"
        + (f", and the CKA of what they write {number(row['cka'])}." if row["cka"] == row["cka"] else "."),
    )


def apart(table: pd.DataFrame) -> Finding:
    place = int(table["js_distance"].to_numpy().argmax())
    a, b = both(table, place)
    distance = number(table["js_distance"].iloc[place])
    return Finding("Furthest apart", f"{at_start(a)} and {name(b)} look least alike, at a JS distance of {distance}.")


def alone(table: pd.DataFrame) -> Finding | None:
    """The head that is furthest from its nearest."""
    nearest: dict[Head, float] = {}
    for a, b, distance in zip(*heads_of(table), table["js_distance"].tolist(), strict=True):
        for head in (a, b):
            nearest[head] = min(distance, nearest.get(head, distance))
    if len(nearest) < 3:
        return None
    head = max(nearest, key=lambda h: nearest[h])
    return Finding("Alone", f"{at_start(head)} is most by itself: the nearest other is {number(nearest[head])} away.")


def otherwise(table: pd.DataFrame) -> Finding | None:
    """Of the half of pairs that look more alike, the one that writes least alike."""
    near = table[(table["js_distance"] <= table["js_distance"].median()) & table["cka"].notna()]
    if len(near) < 3:
        return None
    place = int(near["cka"].to_numpy().argmin())
    a, b = both(near, place)
    row = near.iloc[place]
    return Finding(
        "Alike in looks only",
        f"Of the half of all pairs that look more alike, {name(a)} and {name(b)} write least alike: CKA "
        f"{number(row['cka'])} at a JS distance of {number(row['js_distance'])}.",
    )


def same_again(matched: pd.DataFrame, between: pd.DataFrame, other: str) -> Finding:
    """Does another training make the same heads?"""
    same_layer = between[between["layer_a"] == between["layer_b"]]
    own, any_two = (number(part["js_distance"].mean()) for part in (matched, same_layer))
    kept = int((matched["head_a"] == matched["head_b"]).sum())
    return Finding(
        "In another training",
        f"Matched with {other}, a head is {own} from its counterpart on average, where any two heads of a layer are "
        f"{any_two} apart. {kept} of {len(matched)} heads have the same number in both.",
    )
