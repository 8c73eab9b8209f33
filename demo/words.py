"""Everything the page says, in the language that is asked for; the texts are in texts.py and names_zh.py. No gradio."""

import re
from typing import Any

from attnkit.labels import meaning, words
from demo.names_zh import FIGURES_ZH, OF_CHECKPOINTS, STATISTICS_ZH, TOKEN_ZH
from demo.texts import LANGUAGES, WORDS

HEAD = r"(?:[a-z]+\.)?\d+\.\d+"  # as `views.written` writes it


class Refusal(ValueError):
    """A mistake of the person who asked, in a sentence for them: `str` is the English, `sentence` any language's."""

    def __init__(self, key: str, **values: Any):
        super().__init__(say("en", key, **values))
        self.key, self.values = key, values


def say(language: str, key: str, **values: Any) -> str:
    """The text of a key; an unknown language is answered in English."""
    text = WORDS[key][list(LANGUAGES).index(language) if language in LANGUAGES else 0]
    return text.format(**values) if values else text


def sentence(language: str, error: ValueError) -> str:
    """What an error says to a person. What the library says of a damaged file stays English."""
    return say(language, error.key, **error.values) if isinstance(error, Refusal) else str(error)


def of_checkpoint(language: str, text: str) -> str:
    """A class, or the rule, as a checkpoint names it."""
    return OF_CHECKPOINTS.get(text, text) if language == "zh" else text


def of_figure(language: str, text: str) -> str:
    """What a figure is labelled with, line by line; what is not known, as names of readings, stays."""
    return "\n".join(label(line) for line in text.split("\n")) if language == "zh" else text


def label(text: str) -> str:
    for english, chinese in FIGURES_ZH.items():
        pattern = re.sub(r"\\{([nm])\\}", r"(?P<\1>\\d+)", re.escape(english))
        pattern = pattern.replace(r"\{off\}", rf"(?P<off>{HEAD}(?:, {HEAD})*)")
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+?)", pattern)
        if found := re.fullmatch(pattern, text):
            parts = found.groupdict()
            return chinese.format(**parts | ({"what": label(parts["what"])} if "what" in parts else {}))
    return text


def statistic(language: str, name: str) -> tuple[str, str]:
    """The title of a statistic and what it says in plain words."""
    if language != "zh":
        return words(name), meaning(name)
    if name.startswith("token_weight["):
        return TOKEN_ZH[0].format(token=words(name).removeprefix("Weight on token ")), TOKEN_ZH[1]
    return STATISTICS_ZH.get(name) or (words(name), meaning(name))


def preferred(accept_language: str | None) -> str:
    """The first language of a browser's list (RFC 9110, 12.5.4) that the page speaks, else English."""
    wanted = []
    for item in (accept_language or "").split(","):
        tag, _, rest = item.strip().partition(";")
        weight = re.fullmatch(r"\s*q=([01](?:\.\d*)?)\s*", rest)
        wanted.append((-(float(weight[1]) if weight else 1.0), tag.split("-")[0].lower()))
    return next((tag for _, tag in sorted(wanted, key=lambda pair: pair[0]) if tag in LANGUAGES), "en")


def page_words(language: str) -> dict[str, str]:
    """Every text of one language, for the page's own scripts."""
    classes = {f"class:{text}": of_checkpoint(language, text) for text in OF_CHECKPOINTS}
    return {key: say(language, key) for key in WORDS} | classes
