"""What a study of a transformers model is of: the model and its texts, as the command line names them."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.subject import shown
from attnkit import cli
from attnkit.checkpoint import versions
from attnkit.files import sha256
from attnkit.text import TextBatch, Texts

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

BATCH = 32  # texts that run side by side
TOGETHER = 16  # times as many are read at a time
OTHER = ("checkpoint", "split", "data")  # arguments that name another subject


@dataclass(frozen=True)
class TextSubject:
    name: str  # a folder, or a name on the hub
    folder: Path  # where the model's files lie
    model: PreTrainedModel  # in eval mode, on the device
    tokenizer: PreTrainedTokenizerBase
    texts: Texts
    batch_size: int
    out: Path

    def batches(self) -> Iterator[TextBatch]:
        """The texts, behind a progress bar where someone looks; so many at a time that some are of like length."""
        size = TOGETHER * self.batch_size
        total = -(-self.texts.seen.sequences // size)
        return iter(cli.progress(self.texts.batches(size), total=total, unit="batch"))

    def identity(self) -> dict[str, Any]:
        """What would have to be the same for two runs to be of the same thing."""
        import transformers

        return {
            "checkpoint_sha256": sha256(*weights(self.folder)),
            "data": shown(self.texts.path),
            "data_sha256": sha256(self.texts.path),
            "max_tokens": self.texts.longest,
            "window_overlap": self.texts.overlap,
            "batch_size": self.batch_size,
            "versions": versions() | {"transformers": transformers.__version__},
        }

    def record(self) -> dict[str, Any]:
        """What ran on what, for run.json, with the keys of a checkpoint's."""
        config = self.model.config
        return {
            "checkpoint": shown(self.folder) if Path(self.name).is_dir() else self.name,
            "split": "data",
            "population": False,
            "device": str(self.model.device),
            **self.identity(),
            "model": {
                "architecture": type(self.model).__name__,
                "layers": getattr(config, "num_hidden_layers", None),
                "heads": getattr(config, "num_attention_heads", None),
                "dtype": str(self.model.dtype).removeprefix("torch."),
            },
            "groups": self.groups,
            "texts": self.texts.seen.count,
            "longest": self.texts.seen.length,
            "truncated": self.texts.seen.truncated,
        }

    @property
    def groups(self) -> str | None:
        """What the groups in the tables are by."""
        if self.texts.seen.labelled:
            return "label"
        return None if self.texts.classes is None else "the model's own predictions"

    @property
    def foretells(self) -> bool:
        """Does the model foretell tokens? Then its loss is per token."""
        from attnkit.pretrained import task_of

        return task_of(self.model) == "language"

    def out_of(self, kind: str, kinds: Collection[str]) -> Path:
        """Where the study of one kind of attention is written: where there are several, each has a folder."""
        return self.out if len(kinds) == 1 else self.out / kind

    def warn(self, kinds: Collection[str] = ()) -> None:
        for note in self.notes(kinds):
            print(f"warning: {note}")

    def notes(self, kinds: Collection[str] = ()) -> list[str]:
        """What must be said aloud of how the texts were read. `kinds`: of attention, that was seen."""
        seen, longest = self.texts.seen, self.texts.longest
        notes = []
        if seen.truncated:
            notes.append(f"{seen.truncated:,} of {seen.count:,} texts were cut to {longest} tokens")
        if seen.sequences > seen.count:
            notes.append(
                f"{seen.count:,} texts were read in {seen.sequences:,} windows of at most {longest} tokens; windows of "
                "one text depend on each other, so the intervals are too narrow"
            )
        if self.texts.start is not None and not self.texts.seen.paired and self.foretells:
            notes.append("the texts have no `pair`: what the decoder is to write is the text itself")
        if "cross" in kinds and "encoder" not in kinds:
            name = type(self.model).__name__
            notes.append(f"the encoder of {name} computes its attention in a way of its own, which is not measured")
        return notes


def add_text_arguments(to: argparse.ArgumentParser) -> None:
    """Let a study's parser, one of `subject.parser`, take a transformers model and texts in a checkpoint's place."""
    group = to.add_argument_group("a transformers model, in the place of a checkpoint (pip install 'attnkit[hf]')")
    given: dict[str, Any] = {"default": argparse.SUPPRESS}
    group.add_argument("--hf", metavar="MODEL", help="a folder, or a name on the hub", **given)
    texts = ".txt, a text a line; or .csv, .jsonl, .parquet with a column `text`"
    group.add_argument("--text", type=Path, metavar="FILE", help=f"the texts: {texts}", **given)
    most = "cut texts to so many tokens (default: what the model takes)"
    group.add_argument("--max-tokens", type=cli.positive_int, metavar="N", help=most, **given)
    overlap = "cut longer texts into windows instead, of which each shares N tokens with the one before"
    group.add_argument("--window-overlap", type=cli.whole_number(0), metavar="N", help=overlap, **given)


def is_of_texts(args: argparse.Namespace) -> bool:
    """Is a transformers model asked for, and not a checkpoint? Raises UsageError where that is not plain."""
    if "hf" not in args:
        for name in ("text", "max_tokens", "window_overlap"):
            if name in args:
                raise cli.UsageError(f"--{name.replace('_', '-')}: needs --hf, the model that reads the texts")
        return False
    for name in OTHER:
        if name in args:
            raise cli.UsageError(f"--{name}: not allowed with --hf, whose model reads --text")
    if "text" not in args:
        raise cli.UsageError("--text: is missing: --hf needs a file of texts")
    return True


def open_text_subject(args: argparse.Namespace) -> TextSubject:
    """Load what the arguments name."""
    try:
        import transformers

        from attnkit import pretrained
    except ImportError:
        raise ValueError("hf: this needs transformers 5 or later: pip install 'attnkit[hf]'") from None
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    device = cli.pick_device(args.device)
    model, tokenizer = pretrained.load(args.hf)
    folder = pretrained.folder_of(args.hf)
    assert folder is not None
    model.to(device)  # type: ignore[arg-type]  # transformers' stub has another overload in sight
    allowed = pretrained.longest_text(model, tokenizer)
    longest = getattr(args, "max_tokens", allowed)
    if longest > allowed:
        raise cli.UsageError(f"--max-tokens: got {longest}, allowed for {args.hf} is at most {allowed}")
    out = args.out if "out" in args else cli.PROJECT / "reports" / Path(args.hf).name
    overlap, classes = getattr(args, "window_overlap", None), pretrained.classes_of(model)
    texts = Texts(args.text, tokenizer, longest, overlap, classes, pretrained.start_of(model))
    texts.survey()
    return TextSubject(args.hf, folder, model, tokenizer, texts, getattr(args, "batch_size", BATCH), out)


def weights(folder: Path) -> list[Path]:
    """The files of a model that hold its weights."""
    return sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
