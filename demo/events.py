"""What the page calls: a visitor's question in, what its components show out. It is computed elsewhere."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
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


def edit(view: Callable[..., tuple[Any, ...]], outputs: int) -> Callable[..., Awaitable[Any]]:
    """The same for an edit; what is wrong with it stands before the view's `outputs`, and what is shown stays.

    Neither gradio's toasts, which edits that pass by its queue do not reach, nor its `validator`, a request of its
    own before each answer.
    """

    async def call(*values: Any) -> tuple[Any, ...]:
        try:
            return "", *await EDITS.run(lambda: view(Asked(*values)))
        except ValueError as error:
            return parts.problem(words.sentence(values[0], error)), *[gr.skip()] * outputs

    return call


def edit_event(view: Callable[[gr.EventData, Asked], tuple[Any, ...]], outputs: int) -> Callable[..., Awaitable[Any]]:
    async def call(event: gr.EventData, *values: Any) -> tuple[Any, ...]:
        found: tuple[Any, ...] = await edit(lambda asked: view(event, asked), outputs)(*values)
        return found

    return call


def show(asked: Asked) -> tuple[Any, ...]:
    """The answer, the grid and the cells."""
    reading = asked.read()
    cells = gr.skip() if isinstance(reading, Sentence) else wire(packing.cells(reading))
    return parts.answer(asked.language, reading), wire(packing.packed(reading)), cells


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


def ablate(event: gr.EventData, asked: Asked) -> tuple[Any, ...]:
    """Switch heads off or on, as the grid says."""
    after = replace(asked, off=event.off, replacement=event.replacement)
    return after.off, after.replacement, *show(after)


def travel(event: gr.EventData, asked: Asked) -> tuple[Any, ...]:
    """The same sequence after more or fewer steps of training."""
    after = replace(asked, step=str(event.step))
    return after.step, *show(after)


def look(event: gr.EventData, asked: Asked) -> tuple[Any, ...]:
    """The same texts, and another kind of attention."""
    after = replace(asked, kind=str(event.kind))
    return after.kind, *show(after)


def choose(asked: Asked) -> tuple[Any, ...]:
    """All that depends on the checkpoint. What was typed and switched stays where this checkpoint can take it.

    A component is told everything in one update: of two in one answer the first would be lost.
    """
    if served.subject:
        return choose_text(served.subject, asked)
    info, _ = open_checkpoint(asked.checkpoint)
    found = samples.near_ties(asked.checkpoint)
    sequence, off = asked.sequence, asked.off
    try:
        views.token_ids(info, sequence)
    except ValueError:
        sequence = found.get("more") or samples.random_sequence(asked.checkpoint)
    try:
        views.known_heads(info.model.n_layers, info.model.n_heads, views.heads_of(off))
    except ValueError:
        off = ""
    step = asked.step if asked.step in map(str, info.snapshots) else ""
    after = replace(asked, sequence=sequence, off=off, step=step)
    verdict, grid, cells = show(after)
    texts = words.page_words(asked.language)
    placeholder = say(asked.language, "placeholder", longest=info.model.max_len, vocab=" ".join(info.task.vocab))
    labels = [say(asked.language, kind, ones=s.count("1"), length=len(s)) for kind, s in found.items()]
    return (
        gr.Textbox(value=sequence, placeholder=placeholder, label=texts["sequence"]),
        gr.skip(),
        gr.Dataset(samples=[[s] for s in found.values()], sample_labels=labels, visible=bool(found)),
        off,
        gr.skip(),
        step,
        verdict,
        gr.HTML(
            value=grid,
            over_set=wire(parts.over_set(asked.language, asked.checkpoint)),
            words=wire(texts),
            checkpoints=wire(shelf()[0]),
        ),
        gr.HTML(value=cells, words=wire(texts)),
    )


def choose_text(subject: Subject, asked: Asked) -> tuple[Any, ...]:
    """The same for a transformers model, which has no more than texts and heads."""
    texts, off, tries = parts.text_words(asked.language, subject), asked.off, samples.texts(subject.two_texts)
    sequence, second = asked.sequence, asked.second
    try:
        served.tokenized(subject, sequence, second)
    except ValueError:
        sequence, second = next(iter(tries.items()))
    try:
        served.known_heads_of(subject, views.heads_of(off))
    except ValueError:
        off = ""
    kind = asked.kind if asked.kind in subject.kinds else subject.kinds[0]
    verdict, grid, _ = show(replace(asked, sequence=sequence, second=second, off=off, kind=kind))
    placeholder = say(asked.language, "text_placeholder", longest=subject.longest)
    of_second = say(asked.language, "second_placeholder", longest=subject.longest)
    return (
        gr.Textbox(value=sequence, placeholder=placeholder, label=texts["sequence"]),
        gr.Textbox(value=second, placeholder=of_second, label=texts["second"]),
        gr.Dataset(samples=[[text] for text in tries], visible=True),
        off,
        kind,
        "",
        verdict,
        gr.HTML(value=grid, over_set=wire(None), words=wire(texts), checkpoints=wire([subject.name])),
        gr.skip(),
    )


def speak(language: str) -> tuple[Any, ...]:
    """The words of what `choose` does not tell anyway."""
    subject = served.subject
    texts = parts.text_words(language, subject) if subject else words.page_words(language)
    names, broken = ([subject.name], {}) if subject else shelf()
    left_out = "<br>".join(
        say(language, "left_out", name=escape(name), reason=escape(reason)) for name, reason in broken.items()
    )
    return (
        gr.Markdown(f"# {texts['title']}\n{texts['intro']}"),
        gr.Radio(label=texts["language"], value=language),
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
        *speak(language),
    )


def translate(asked: Asked) -> tuple[Any, ...]:
    return *choose(asked), *speak(asked.language)


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
