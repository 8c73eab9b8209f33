"""How tokens and statistics are written where people read them: on an axis, in a title, in a table."""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise

import numpy as np

from attnkit.measures import MEASURES

MARKS = {" ": "␣", "▁": "␣", "\t": "⇥", "\n": "⏎", "\r": "⇤"}  # ▁ is SentencePiece's space
EMPTY = "∅"


def readable(
    tokens: Sequence[str], *, longest: int = 16, drawable: Callable[[str], bool] = lambda character: True
) -> list[str]:
    """Return the tokens so that people can read them and tell them apart.

    A space, a tab and the end of a line become marks, whether plain, as SentencePiece writes them (▁the) or as
    byte-level tokenizers do (Ġthe). A piece of a character that is split over tokens is shown as its bytes,
    <F09F>; control characters and those that are not `drawable` as their code, U+4E2D. BERT's ## stays.
    A label of more than `longest` characters ends in an ellipsis.
    """
    plain = from_bytes if is_byte_level(tokens) else from_sentencepiece
    labels = []
    for token in tokens:
        label = "".join(visible(c, drawable) for c in plain(token)).replace("  ", " ").strip() or EMPTY
        labels.append(label if len(label) <= longest else label[: longest - 1] + "…")
    return labels


def visible(character: str, drawable: Callable[[str], bool]) -> str:
    if character in MARKS:
        return MARKS[character]
    nothing_to_see = unicodedata.category(character)[0] in "CZ" or character == "\N{REPLACEMENT CHARACTER}"
    return f" U+{ord(character):04X} " if nothing_to_see or not drawable(character) else character


def from_sentencepiece(token: str) -> str:
    """A byte that is no character by itself is written <0xF0> by SentencePiece."""
    is_byte = len(token) == 6 and token.startswith("<0x") and token.endswith(">")
    return f"<{token[3:5]}>" if is_byte else token


def byte_alphabet() -> dict[str, int]:
    """GPT-2's bijection: a printable Latin-1 byte is its own letter, the others are U+0100, U+0101, … in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(0x100) if b not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


BYTES = byte_alphabet()


def is_byte_level(tokens: Iterable[str]) -> bool:
    """Whether a token has a sign that text has not.

    That is a Ġ or Ċ in front (a space, the end of a line), or the first byte of a longer character followed by
    a byte that can only continue one.
    """
    return any(
        token[:1] in {"Ġ", "Ċ"} or any(starts(a) and continues(b) for a, b in pairwise(token)) for token in tokens
    )


def starts(character: str) -> bool:
    return 0xC2 <= BYTES.get(character, 0) <= 0xF4


def continues(character: str) -> bool:
    return 0x80 <= BYTES.get(character, 0) <= 0xBF


def from_bytes(token: str) -> str:
    """Undo the byte alphabet; bytes that make no character by themselves stay visible, <F09F>."""
    if not all(c in BYTES for c in token):
        return token  # a special token, which the tokenizer keeps as text
    text = bytes(BYTES[c] for c in token).decode(errors="surrogateescape")  # a stray byte b becomes U+DC00 + b
    runs = groupby(text, key=lambda c: "\udc80" <= c <= "\udcff")
    return "".join(
        "<" + "".join(f"{ord(c) - 0xDC00:02X}" for c in run) + ">" if stray else "".join(run) for stray, run in runs
    )


WORDS = {  # statistic: its name for a title, and what it says in plain words
    "entropy": (
        "Entropy",
        "how widely a token spreads its attention: 0 is all on one key, the largest is evenly on all",
    ),
    "entropy_normalized": ("Normalized entropy", "the same as a share of the largest that is possible: 1 is uniform"),
    "max_weight": ("Largest weight", "how much the most attended key gets"),
    "effective_keys": ("Effective number of keys", "to how many keys, attended evenly, the row amounts"),
    "distance": ("Distance", "how far away the head looks, on average"),
    "offset": ("Offset", "to which side it looks: below 0 to earlier tokens, above 0 to later ones"),
    "self_weight": ("Weight on the token itself", "how much each token attends to itself"),
    "previous_weight": ("Weight on the previous token", "how much goes to the token just before"),
    "next_weight": ("Weight on the next token", "how much goes to the token just after"),
    "first_weight": ("Weight on the first token", "how much goes to the first token, where idle heads often look"),
    "last_weight": ("Weight on the last token", "how much goes to the last token"),
    "special_weight": ("Weight on special tokens", "how much goes to tokens that the tokenizer adds"),
    "duplicate_weight": ("Weight on earlier copies", "how much goes to earlier copies of the token"),
    "induction_weight": (
        "Weight on what followed an earlier copy",
        "how much goes to what came after an earlier copy of the token, as in copying a pattern",
    ),
    "selectivity": (
        "Selectivity for the own token",
        "whether the head tells its own token from the others: above 0 it prefers keys like the query, below 0 unlike",
    ),
    "output_norm": ("Length of the output", "how much the head adds to the token's representation"),
    "entropy_of_mean": (
        "Entropy of the mean map",
        "how spread the head's average map is; far above the entropy, the pattern moves with the content",
    ),
    "positional_share": (
        "Positional share",
        "how much of the pattern position alone explains: 1 is a fixed pattern, near 0 one made by the content",
    ),
    "accuracy_drop": (
        "Accuracy lost without it",
        "the share of the answers that is lost when the head puts out nothing",
    ),
    "answers_changed": (
        "Answers that change without it",
        "the share of the answers that are others when the head puts out nothing",
    ),
    "divergence": (
        "Divergence without it (nats)",
        "how far what the model says moves, as a Kullback–Leibler divergence, when the head puts out nothing",
    ),
    "similarity_change": (
        "Change of similarity without it",
        "how far the cosine of two texts moves when the head puts out nothing",
    ),
    "embedding_change": (
        "Change of the embedding without it",
        "1 − the cosine of a text's embedding with itself when the head puts out nothing",
    ),
    "loss_increase": ("Loss increase without it (nats)", "how much the loss rises when the head puts out nothing"),
    "gradient_importance": (
        "Gradient importance",
        "how steeply the loss changes, on the average sequence, when the head is turned down a little",
    ),
}
TOKEN_MEANING = "how much goes to all tokens of this kind together"


def words(statistic: str) -> str:
    """The name of a statistic for a title: "Distance", "Weight on token 1"."""
    if statistic.startswith("token_weight[") and statistic.endswith("]"):
        return "Weight on token " + readable([statistic[len("token_weight[") : -1]])[0]
    return WORDS[statistic][0] if statistic in WORDS else statistic.replace("_", " ").capitalize()


def meaning(statistic: str) -> str:
    """What a statistic says, in plain words; "" for one that is unknown here."""
    return TOKEN_MEANING if statistic.startswith("token_weight[") else WORDS.get(statistic, ("", ""))[1]


def unit(statistic: str) -> str:
    """nats, keys, tokens, weight, or "" for a pure number."""
    if statistic.startswith("token_weight["):
        return "weight"
    own = "nats" if statistic == "entropy_of_mean" else getattr(MEASURES.get(statistic), "unit", "none")
    return "" if own == "none" else own


def words_and_unit(statistic: str) -> str:
    """The name with its unit where the name does not say it: "Distance (tokens)"."""
    return f"{words(statistic)} ({unit(statistic)})" if unit(statistic) in {"nats", "tokens"} else words(statistic)


def group_words(group: str) -> str:
    """The name of a group of sequences for a legend: "label=majority" is "label: majority"."""
    return "all sequences" if group == "all" else group.replace("=", ": ", 1)


def number(value: float | int | np.integer) -> str:
    """Three digits that matter, short enough for a cell of a table or a heat map."""
    value = float(value)
    if value == 0:
        return "0"
    if abs(value) < 0.001:
        text = f"{value:.0e}"
    else:
        text = f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:#.3g}".rstrip(".")
    return text.replace("-", "−")
