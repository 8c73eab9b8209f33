"""The section of the report that tells when heads learnt, read off the tables of `analysis.training_dynamics`."""

import base64
from collections.abc import Iterator
from typing import Any, NamedTuple

import pandas as pd

from analysis.columns import Dictionary
from analysis.findings import Finding, Head, at_start, name, names
from analysis.page import (
    Cell,
    Drawn,
    Folder,
    Picture,
    Section,
    Table,
    measured_on,
    percent,
    pictures,
    right,
    value_cell,
)
from attnkit import training_plots
from attnkit.labels import number

FIGURES = {
    "training_curve": (
        "The loss, and when each head changes",
        "Above, as far as they are known: loss and accuracy of the whole model. Below, on the same axis: how much each "
        "head changes from one snapshot to the next, the darker the more; its largest change is framed. Early changes "
        "that leave the loss alone are rearrangement; look for those that go with its fall.",
    ),
    "training_importance": (
        "What is lost without each head",
        "Each head is removed at each step (zero ablation). A head that costs nothing at the end may have carried the "
        "answer for a while.",
    ),
    "training_statistics": (
        "Every statistic along training",
        "A colour for each head number, a stroke for each layer; grey is uniform attention. Bands: 95 % intervals, or "
        "of several trainings from the smallest to the largest.",
    ),
    "training_maps": (
        "The mean maps along training",
        "A row for each head, a column for each snapshot. What fades was only position; what depends on the content "
        "averages out and shows in the statistics alone.",
    ),
}
DICTIONARY = Dictionary(
    tables=(
        *("training_dynamics", "training_curve", "training_changes", "training_maps"),
        *("training_average", "training_changes_average"),
    ),
    columns={
        "checkpoint": ("the training", ""),
        "step": ("after how many steps of the optimiser", "steps"),
        "matched": ("the head of the first training, in the same layer, that does the same", ""),
        "step_from": ("the step of the earlier snapshot", "steps"),
        "step_to": ("the step of the next one", "steps"),
        "js_divergence": ("the Jensen–Shannon divergence of the head’s rows before and after", "bits"),
        "per_doubling": ("js_distance / log2((1 + step_to) / (1 + step_from))", "√bits"),
        "query": ("the position that looks", ""),
        "key": ("the position looked at", ""),
        "weight": ("the mean weight over the sequences", "weight"),
        "training_maps.uniform": ("what uniform attention gives", "weight"),
        "checkpoints": ("of how many trainings", "trainings"),
        "training_average.mean": ("the mean over the trainings, heads matched", "of the statistic"),
        "low": ("the smallest of the trainings", "of the statistic"),
        "high": ("the largest of the trainings", "of the statistic"),
    },
)
MAPS = "training_maps"  # the table, of Parquet
MOVING = "training_motion"  # the maps once more, as GIF
WORTH = ["accuracy_drop", "loss_increase", "gradient_importance"]  # the statistics that tell what a head is worth
NEEDED = 0.01  # accuracy lost, from which on a head is said to be needed
STILL = 0.05  # JS distance per doubling below which a head is said to stay as it was


class Tables(NamedTuple):
    curve: pd.DataFrame
    dynamics: pd.DataFrame
    values: pd.DataFrame  # of the heads: those of the one training, or of several the mean, heads matched
    changes: pd.DataFrame  # likewise


def tables(folder: Folder) -> Tables | None:
    curve, dynamics, changes = (folder.table(f"training_{name}") for name in ("curve", "dynamics", "changes"))
    if curve is None or dynamics is None or changes is None:
        return None
    average, of_changes = folder.table("training_average"), folder.table("training_changes_average")
    if curve["checkpoint"].nunique() > 1 and average is not None and of_changes is not None:
        return Tables(curve, dynamics, average, of_changes)
    return Tables(curve, dynamics, dynamics, changes)  # an average that lies there is of an earlier run


def figures(folder: Folder) -> Iterator[tuple[str, Drawn]]:
    found = tables(folder)
    if found is None:
        return
    maps = folder.table(MAPS)
    yield "training_curve", training_plots.curve(found.curve, found.changes)
    described = [name for name in found.values["statistic"].unique() if name not in WORTH]
    yield "training_statistics", training_plots.statistics(found.values, described)
    if WORTH[0] in set(found.values["statistic"]):  # of texts it is not measured
        yield "training_importance", training_plots.statistics(found.values, WORTH[:2], columns=2)
    if maps is not None and len(maps):  # of the first training
        first = found.curve["checkpoint"].iloc[0]
        of_first, curve = (table[table["checkpoint"] == first] for table in (maps, found.curve))
        yield "training_maps", training_plots.maps(of_first)
        yield MOVING, training_plots.moving_maps(of_first, curve)


def when_they_learnt(folder: Folder) -> Section | None:
    found = tables(folder)
    if found is None:
        return None
    curve, dynamics, values, changes = found
    record = folder.record("training_dynamics")
    several = len(record["trainings"]) > 1
    drops, losses = along(values, "accuracy_drop"), along(values, "loss_increase")
    top = largest(changes)
    told = [*the_answer(curve, record), *where(top)]
    if drops:
        told.append(needed(drops))
    if several:
        told.append(agreement(dynamics, record))
    return Section(
        "training",
        "When each head learnt",
        f"{measured_on(folder, record)} {len(curve['step'].unique())} snapshots of the weights were kept along "
        "training. How much a head changes between two of them is its JS distance: the root of the Jensen–Shannon "
        "divergence in bits between its rows before and after, averaged over rows, then over sequences; 0 is no "
        "change, 1 no key in common. Divided by the doublings of the step (counted from 1), it is the change per "
        "doubling, and a head changes most where that is largest."
        + (
            " Heads of further trainings are matched with those of the first by their last snapshots; what is said of "
            "a head is the mean over the trainings, what is said of the model is of the first."
            if several
            else ""
        ),
        findings=told,
        pictures=with_animation(folder),
        table=head_table(top, drops, losses),
    )


class Change(NamedTuple):
    start: int  # the steps of two neighbouring snapshots
    end: int
    size: float  # JS distance per doubling of the steps


def largest(changes: pd.DataFrame) -> dict[Head, Change]:
    """For each head the neighbouring snapshots between which it changes most."""
    found: dict[Head, Change] = {}
    columns = (changes[c].tolist() for c in ("layer", "head", "step_from", "step_to", "per_doubling"))
    for layer, head, *change in zip(*columns, strict=True):
        new = Change(*change)
        if new.size > found.get((layer, head), Change(0, 0, -1.0)).size:
            found[layer, head] = new
    return found


def along(values: pd.DataFrame, statistic: str) -> dict[Head, dict[int, float]]:
    """By head and step, which rises."""
    found: dict[Head, dict[int, float]] = {}
    rows = values[values["statistic"] == statistic].drop_duplicates(["step", "layer", "head"]).sort_values("step")
    for layer, head, step, mean in zip(*(rows[c].tolist() for c in ("layer", "head", "step", "mean")), strict=True):
        found.setdefault((layer, head), {})[step] = mean
    return found


def the_answer(curve: pd.DataFrame, record: dict[str, Any]) -> list[Finding]:
    """What the model says right, and how its loss falls, where that is known."""
    if "loss" not in curve:
        return []
    own = curve[curve["checkpoint"] == curve["checkpoint"].iloc[0]].reset_index(drop=True)
    fall = (own["loss"].iloc[:-1].to_numpy() / own["loss"].iloc[1:].to_numpy()).argmax()
    start, end = own["step"].iloc[[fall, fall + 1]]
    falls = (
        f"The loss falls by the largest factor from step {start} to {end}: {number(own['loss'][fall])} to "
        f"{number(own['loss'][fall + 1])} nats"
    )
    if "accuracy" not in own:
        return [Finding("The model", f"{falls} a token.")]
    first, best = own.iloc[0], own.iloc[int(own["accuracy"].to_numpy().argmax())]
    epochs = record.get("steps_of_epoch")
    passes = f", after {number(best['step'] / epochs)} passes over the training set" if epochs else ""
    later = (
        f"at step {best['step']:.0f}{passes}, {right(best['accuracy'], int(best['n']))}, which no earlier snapshot does"
    )
    if best["step"] == first["step"]:
        later = "no later snapshot answers more"
    text = f"At step {first['step']:.0f} it answers {right(first['accuracy'], int(first['n']))}; {later}."
    return [Finding("The model", f"{text} {falls}.")]


def where(top: dict[Head, Change]) -> list[Finding]:
    """At which steps each head changes most; and the heads that change most and least."""
    if not top:
        return []
    by_steps: dict[tuple[int, int], list[Head]] = {}
    still = [head for head, change in top.items() if not change.size]
    for head, change in sorted(top.items(), key=lambda item: item[1][:2]):
        if head not in still:
            by_steps.setdefault((change.start, change.end), []).append(head)
    parts = [f"From step {start} to {end}: {names(heads)}." for (start, end), heads in by_steps.items()]
    parts += [f"Not at all: {names(still)}."] if still else []
    most, least = max(top, key=lambda h: top[h].size), min(top, key=lambda h: top[h].size)
    start, end, size = top[most]
    text = f"{at_start(most)} changes most: {number(size)} per doubling from step {start} to {end}."
    if most != least:
        text += f" {at_start(least)} changes least: nowhere more than {number(top[least].size)}" + (
            ", so that it stays about as it was drawn." if top[least].size < STILL else "."
        )
    return [Finding("Where each head changes most", " ".join(parts)), Finding("The most and the least", text)]


def needed(drops: dict[Head, dict[int, float]]) -> Finding:
    """Since which snapshot a head costs accuracy, without a break to the end; and which ones only did for a while."""
    parts, passing = [], []
    for head, of_head in drops.items():
        steps = list(of_head)
        costs = [drop >= NEEDED for drop in of_head.values()]
        if costs[-1]:
            since = next(k for k in range(len(costs)) if all(costs[k:]))
            end = percent(round(of_head[steps[-1]], 4))
            parts.append(f"{name(head)} since step {steps[since]} ({end} at the end)")
        elif any(costs):
            passing.append(head)
    text = f"Without it at least {100 * NEEDED:.0f}\N{NO-BREAK SPACE}% of the answers are lost: "
    text += f"{'; '.join(parts)}." if parts else "at the end, no head by itself."
    if passing:
        steps = list(drops[passing[0]])
        worst = max(steps, key=lambda step: sum(drops[head][step] for head in passing))
        text += f" On the way and not at the end, most at step {worst}: {names(passing)}."
    return Finding("Needed since", text)


def agreement(dynamics: pd.DataFrame, record: dict[str, Any]) -> Finding:
    """Do matched heads of other trainings matter as much?"""
    last = dynamics[(dynamics["step"] == dynamics["step"].max()) & (dynamics["statistic"] == "accuracy_drop")]
    spread = last.groupby(["layer", "matched"])["mean"].agg(["min", "max"])
    place = int((spread["max"] - spread["min"]).to_numpy().argmax())
    head: Head = spread.index.to_list()[place]
    low, high = (percent(round(float(spread[end].iloc[place]), 4)) for end in ("min", "max"))
    return Finding(
        "In other trainings",
        f"Over {len(record['trainings'])} trainings, heads matched, what is lost at the end differs most for the heads "
        f"matched with {name(head)}: from {low} to {high} of the answers.",
    )


def with_animation(folder: Folder) -> list[Picture]:
    """The figures, and after the maps the same maps in motion."""
    found = pictures(folder, FIGURES)
    file = folder.path / "figures" / f"{MOVING}.gif"
    if file.is_file():
        source = f"data:image/gif;base64,{base64.b64encode(file.read_bytes()).decode()}"
        text = "The same maps, one snapshot after the other, above the loss. After the last it starts anew."
        found.append(Picture("The heads in motion", text, [("an animation", source)]))
    return found


def head_table(
    top: dict[Head, Change], drops: dict[Head, dict[int, float]], losses: dict[Head, dict[int, float]]
) -> Table:
    """Of texts there are no `drops` and `losses`."""
    rows = []
    for (layer, head), change in sorted(top.items()):
        row = [
            Cell(str(layer), layer),
            Cell(str(head), head),
            Cell(f"{change.start} to {change.end}", change.end) if change.size else Cell("–"),
            value_cell(change.size, 0.0),
        ]
        if drops:
            of_head = drops[layer, head]
            most = max(of_head, key=lambda step: of_head[step])
            row += [share_cell([*of_head.values()][-1]), share_cell(of_head[most]), Cell(str(most), most)]
            row.append(value_cell([*losses[layer, head].values()][-1], 0.0))
        rows.append(row)
    columns = [
        ("Layer", ""),
        ("Head", ""),
        ("Changes most at steps", "the neighbouring snapshots with the largest change per doubling of the step"),
        ("Change there (JS distance per doubling)", ""),
    ]
    if not drops:
        return Table("When each head changes most", columns, rows, 2, sortable=True)
    columns += [
        ("Accuracy lost without it at the end", ""),
        ("Most accuracy lost on the way", ""),
        ("at step", ""),
        ("Loss increase without it at the end (nats)", ""),
    ]
    return Table("When each head changes most, and when it matters", columns, rows, 2, sortable=True)


def share_cell(share: float) -> Cell:
    return Cell(f"{100 * share:.2f}\N{NO-BREAK SPACE}%".replace("-", "−"), float(share))
