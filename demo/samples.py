"""Sequences to start from. No gradio here."""

import random

from attnkit.data import separator
from attnkit.tasks import MAJORITY
from demo.shelf import open_checkpoint

TEXTS = (  # each gives some heads something to find: a pronoun, a repetition, a long way from word to word
    "The cat did not chase the mouse because it was tired.",
    "One two three four, one two three four.",
    "The keys that the man left on the table are gone.",
)

TWO_TEXTS = (  # what an encoder reads, and what a decoder: a translation, a copy, a summary
    ("translate English to German: The house is old.", "Das Haus ist alt."),
    ("One two three four, one two three four.", "One two three four, one two three four."),
    ("The keys that the man left on the table are gone.", "The keys are gone."),
)


def texts(two: bool) -> dict[str, str]:
    """A text, and what goes with it for a decoder; "" where there is none."""
    return dict(TWO_TEXTS) if two else dict.fromkeys(TEXTS, "")


def random_sequence(checkpoint: str) -> str:
    info, _ = open_checkpoint(checkpoint)
    vocab = info.task.vocab
    return separator(vocab).join(random.choices(vocab, k=info.data.length))


def near_ties(checkpoint: str) -> dict[str, str]:
    """Sequences around the edge of the majority rule, by what they are; none for a checkpoint of another task."""
    info, _ = open_checkpoint(checkpoint)
    if info.task.name != MAJORITY.name:
        return {}
    L, half = info.data.length, info.data.length // 2
    ties = {"tie": spread(half, L), "sorted": "1" * half + "0" * half} if 2 * half == L else {}
    return ties | {"more": spread(half + 1, L), "fewer": spread((L - 1) // 2, L), "all": "1" * L}


def spread(ones: int, length: int) -> str:
    """`ones` ones among `length` bits, as evenly as they go."""
    return "".join(str((i + 1) * ones // length - i * ones // length) for i in range(length))
