"""What the page calls: a visitor's question in, what its components show out. It is computed elsewhere."""

from collections.abc import Awaitable, Callable
from dataclasses import astuple, dataclass, replace
from html import escape
from typing import Any

import gradio as gr

from demo import figures, packing, parts, samples, sentences, served, views, words
from demo.lanes import EDITS, REST
from demo.packing import wire
from demo.sentences import Sentence
from demo.served import Subject
from demo.shelf import at_step, open_checkpoint, shelf
from demo.words import say

Props = dict[str, Any]  # what a component is told, by name


@dataclass(frozen=True)
class Asked:
    """What stands on the page when it asks; the fields are the event's inputs, in this order."""

    language: str
    checkpoint: str
    sequence: str
    off: str  # the heads that are switched off, as "0.1 1.3": layer.head
    replacement: str  # what stands in the place of their outputs
    step: str = ""  # after how many steps of training; empty: after all of them
    second: str = ""  # of a model of two parts: what its decoder reads
    kind: str = ""  # of a model of two parts: which of its attention is shown; empty: the encoder's

    @property
    def weights(self) -> str:
        return f"{self.checkpoint}@{self.step}" if self.step else self.checkpoint

    def read(self) -> views.Reading | Sentence:
        return read(vars(self) | {"checkpoint": self.weights})


def read(asked: dict[str, Any]) -> views.Reading | Sentence:
    """By a checkpoint, or by the transformers model that is served in their place; `asked` as `packing.question` is."""
    off = views.heads_of(asked["off"])
    if served.subject:
        more = {"second": asked.get("second", ""), "kind": asked.get("kind", "")}
        return sentences.read(served.subject, asked["sequence"], off, **more)
    return views.read(asked["checkpoint"], asked["sequence"], off, asked["replacement"])


def refusal(language: str, error: ValueError) -> gr.Error:
    """Neither the person who asked nor the log gets a traceback; the page shows the sentence as HTML."""
    return gr.Error(escape(words.sentence(language, error), quote=False), print_exception=False)


def page(view: Callable[[Asked], Any]) -> Callable[..., Awaitable[Any]]:
    """A view of what stands on the page, as gradio calls it: when there is room."""

    async def call(*values: Any) -> Any:
        try:
            return await REST.run(lambda: view(Asked(*values)))
        except ValueError as error:
            raise refusal(values[0], error) from None

    return call


def page_event(view: Callable[[gr.EventData, Asked], Any]) -> Callable[..., Awaitable[Any]]:
    """The same for an event that brings something of its own."""

    async def call(event: gr.EventData, *values: Any) -> Any:
        return await page(lambda asked: view(event, asked))(*values)

    return call


async def edit(*values: Any) -> tuple[Any, ...]:
    """What is wrong with the question, in its own place; then the answer, the grid and the cells, which stay if it is.

    Neither gradio's toasts, which edits that pass by its queue do not reach, nor its `validator`, a request of its
    own before each answer.
    """
    asked = Asked(*values)
    try:
        answer, grid, cells = await EDITS.run(lambda: show(asked))
    except ValueError as error:
        problem = parts.problem(words.sentence(asked.language, error))
        return problem, gr.skip(), gr.HTML(asked=wire(astuple(asked))), gr.skip()
    return "", answer, gr.HTML(**grid), gr.HTML(**cells)


def show(asked: Asked) -> tuple[str, Props, Props]:
    """The answer; what the grid is told, with what it is of; and what the cells are."""
    reading = asked.read()
    grid: Props = {"value": wire(packing.packed(reading)), "asked": wire(astuple(asked))}
    cells: Props = {} if isinstance(reading, Sentence) else {"value": wire(packing.cells(reading))}
    return parts.answer(asked.language, reading), grid, cells


def effects(event: gr.EventData, asked: Asked) -> tuple[Any, ...]:
    """What single changes would do to what the grid has drawn, and what of it is usual.

    The grid waits for the answer to its question, which has a number, before it asks the next.
    """
    try:
        reading = read(event.of)
    except ValueError:  # the event that this one follows has told
        return gr.HTML(effects=wire({"of": "", "number": event.number})), gr.skip(), gr.skip()
    heads, tokens = packing.effects(reading)
    usual = parts.usual(asked.language, reading)
    return (
        gr.HTML(effects=wire(heads | {"number": event.number}), usual=wire(usual)),
        gr.HTML(flips=wire(tokens)),
        parts.ranks(asked.language, heads, reading),
    )


def compare(event: gr.EventData, asked: Asked) -> Any:
    """Another reading, to stand beside what the grid has drawn; or why there is none."""
    try:
        found = packing.packed(read(event.of))
    except ValueError as error:
        found = {**event.of, "refused": words.sentence(asked.language, error)}
    return gr.HTML(beside=wire(found))


def study(event: gr.EventData, asked: Asked) -> Any:
    """What the studies that a visitor opens show of the whole set."""
    return gr.HTML(studies=wire(packing.studies(str(event.checkpoint))))


def choose(asked: Asked) -> tuple[Any, ...]:
    """All that depends on the checkpoint. What was typed and switched stays where this checkpoint can take it.

    A component is told everything in one update: of two in one answer the first would be lost.
    """
    after = fitting_text(served.subject, asked) if served.subject else fitting(asked)
    sequence, second, examples, of_grid, of_cells = labels(after)
    verdict, grid, cells = show(after)
    return (
        gr.Textbox(value=after.sequence, **sequence),
        gr.Textbox(value=after.second, **second),
        examples,
        after.off,
        after.kind,
        after.step,
        verdict,
        gr.HTML(**grid, **of_grid),
        gr.HTML(**cells, **of_cells),
    )


def fitting(asked: Asked) -> Asked:
    """The question as its checkpoint can take it."""
    info, _ = open_checkpoint(asked.checkpoint)
    try:
        views.token_ids(info, asked.sequence)
    except ValueError:
        start = samples.near_ties(asked.checkpoint).get("more") or samples.random_sequence(asked.checkpoint)
        asked = replace(asked, sequence=start)
    try:
        views.known_heads(info.model.n_layers, info.model.n_heads, views.heads_of(asked.off))
    except ValueError:
        asked = replace(asked, off="")
    return asked if asked.step in map(str, info.snapshots) else replace(asked, step="")


def fitting_text(subject: Subject, asked: Asked) -> Asked:
    """The same for a transformers model, which has no more than texts, heads and kinds of attention."""
    try:
        served.tokenized(subject, asked.sequence, asked.second)
    except ValueError:
        sequence, second = next(iter(samples.texts(subject.two_texts).items()))
        asked = replace(asked, sequence=sequence, second=second)
    try:
        served.known_heads_of(subject, views.heads_of(asked.off))
    except ValueError:
        asked = replace(asked, off="")
    return replace(asked, kind=asked.kind if asked.kind in subject.kinds else "", step="")


def labels(asked: Asked) -> tuple[Props, Props, gr.Dataset, Props, Props]:
    """The words of both fields, of the examples, of the grid and of the cells."""
    language, subject = asked.language, served.subject
    if subject:
        texts, tries = parts.text_words(language, subject), samples.texts(subject.two_texts)
        return (
            {"label": texts["sequence"], "placeholder": say(language, "text_placeholder", longest=subject.longest)},
            {"label": texts["second"], "placeholder": say(language, "second_placeholder", longest=subject.longest)},
            gr.Dataset(samples=[[text] for text in tries], visible=True),
            {"over_set": wire(None), "words": wire(texts), "checkpoints": wire([subject.name])},
            {},
        )
    info, _ = open_checkpoint(asked.checkpoint)
    texts, found = words.page_words(language), samples.near_ties(asked.checkpoint)
    placeholder = say(language, "placeholder", longest=info.model.max_len, vocab=" ".join(info.task.vocab))
    names = [say(language, kind, ones=s.count("1"), length=len(s)) for kind, s in found.items()]
    over_set = wire(parts.over_set(language, asked.checkpoint))
    return (
        {"label": texts["sequence"], "placeholder": placeholder},
        {},
        gr.Dataset(samples=[[s] for s in found.values()], sample_labels=names, visible=bool(found)),
        {"over_set": over_set, "words": wire(texts), "checkpoints": wire(shelf()[0])},
        {"words": wire(texts)},
    )


def speak(language: str, **chosen: Any) -> tuple[Any, ...]:
    """The words of what `labels` does not tell; `chosen` is the language itself, where nobody has pressed it."""
    subject = served.subject
    texts = parts.text_words(language, subject) if subject else words.page_words(language)
    names, broken = ([subject.name], {}) if subject else shelf()
    left_out = "<br>".join(
        say(language, "left_out", name=escape(name), reason=escape(reason)) for name, reason in broken.items()
    )
    return (
        gr.Markdown(f"# {texts['title']}\n{texts['intro']}"),
        gr.Radio(label=texts["language"], **chosen),
        gr.Markdown(texts["no_checkpoint"], visible=not names),
        texts["random"],
        texts["clear"],
        gr.Dropdown(label=texts["checkpoint"]),
        gr.HTML(left_out, visible=bool(broken)),
        texts["how"],
    )


async def open_page(request: gr.Request) -> tuple[Any, ...]:
    link = dict(request.query_params)
    language = link.get("language") if link.get("language") in words.LANGUAGES else None
    language = language or words.preferred(request.headers.get("accept-language"))
    try:
        return await REST.run(lambda: first_view(language, link))
    except ValueError as error:
        raise refusal(language, error) from None


def first_view(language: str, link: dict[str, str]) -> tuple[Any, ...]:
    """The checkpoints that are there now, and the page as its address says: else that of the first of them."""
    names = [served.subject.name] if served.subject else shelf()[0]
    wanted, step = at_step(link.get("checkpoint", ""))
    chosen = wanted if wanted in names else next(iter(names), None)
    replacement = link["replacement"] if link.get("replacement") in views.REPLACEMENTS else views.REPLACEMENTS[0]
    texts = {name: link.get(name, "") for name in ("sequence", "second", "off", "kind")}
    asked = Asked(language, chosen or "", replacement=replacement, step=step or "", **texts)
    dropdown = gr.Dropdown(choices=names, value=chosen)
    return (
        gr.Row(visible=bool(names)),
        dropdown,
        asked.replacement,
        *(choose(asked) if names else [gr.skip()] * 9),
        *speak(language, value=language),
    )


def translate(asked: Asked) -> tuple[Any, ...]:
    """All words but those of the answer, which is asked for again besides."""
    sequence, second, examples, grid, cells = labels(asked)
    fields = gr.Textbox(**sequence), gr.Textbox(**second)
    return *fields, examples, gr.HTML(**grid), gr.HTML(**cells), *speak(asked.language)


def save(event: gr.EventData, asked: Asked) -> figures.Download:
    """What is shown, as a file; `beside` is the other reading where two are compared."""
    how = {"quantity": event.quantity, "shared_scale": bool(event.shared), "arcs": bool(event.arcs)}
    how["language"] = asked.language
    return figures.file(asked.read(), event.ending, event.head, beside=other_reading(event.beside), **how)


def other_reading(of: dict[str, Any] | None) -> views.Reading | Sentence | None:
    return read(of) if of else None


def second_of(sample: list[str]) -> tuple[str, str]:
    """A sample, and what goes with it for a decoder."""
    two = served.subject is not None and served.subject.two_texts
    return sample[0], samples.texts(two).get(sample[0], "")


def draw_lot(asked: Asked) -> str:
    return samples.random_sequence(asked.checkpoint)
