"""Every text of the page, in both languages."""

import re
import string
from pathlib import Path

import pytest

from attnkit.labels import WORDS as ENGLISH
from attnkit.tasks import TASKS
from demo import words

DEMO = Path(words.__file__).parent


def blanks(text):
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("key", words.WORDS)
def test_every_text_is_there_in_both_languages_with_the_same_blanks_and_tags(key):
    texts = words.WORDS[key]

    assert len(texts) == len(words.LANGUAGES)
    assert all(text.strip() for text in texts)
    assert blanks(texts[0]) == blanks(texts[1])
    assert re.search("[\u4e00-\u9fff]", texts[1])
    assert not re.search("[\u4e00-\u9fff]", texts[0])
    assert sorted(re.findall("</?\\w+>", texts[0])) == sorted(re.findall("</?\\w+>", texts[1]))


def used():
    """The keys that the page's files ask for."""
    for file in sorted(DEMO.iterdir()):
        if file.suffix in {".py", ".js", ".html"} and file.name not in {"words.py", "texts.py"}:
            text = file.read_text("utf-8")
            yield from re.findall(r"\b(?:say|t|Refusal)\(\s*(?:[\w.]*language,\s*|\"en\",\s*)?\"(\w+)\"", text)
            yield from re.findall(r"texts\[['\"](\w+)['\"]\]", text)


def test_every_text_that_is_asked_for_is_there():
    asked = set(used())

    assert len(asked) > 40
    assert asked <= words.WORDS.keys()


@pytest.mark.parametrize("text", ["Say: yes", "He left, without shoes", "A: b, without 1", "layer 0, head 1"])
def test_a_text_in_the_title_of_a_figure_stays_as_it_was_typed(text):
    title = words.of_figure("zh", f"cross attention, layer 2, head 1: {text}, a/b, without 0.1, cross.0.2")

    assert title == f"交叉注意力，第 2 层，头 1：{text}, a/b，去掉 0.1, cross.0.2"
    assert words.of_figure("zh", f"weight − weight of {text}, a/b") == f"权重 − {text}, a/b 的权重"


def test_no_text_is_there_without_use():
    made = {"tie", "sorted", "more", "fewer", "all"}  # by the kind of an example
    made |= {"kind_encoder", "kind_decoder", "kind_cross"}

    assert words.WORDS.keys() - set(used()) - made == set()


@pytest.mark.parametrize("name", [*ENGLISH, "token_weight[<b>]"])
def test_every_statistic_has_a_name_and_a_meaning_in_both_languages(name):
    english, chinese = words.statistic("en", name), words.statistic("zh", name)

    assert all(english)
    assert all(chinese)
    assert all(re.search("[\u4e00-\u9fff]", text) for text in chinese)
    assert not any(re.search("[\u4e00-\u9fff]", text) for text in english)


@pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))
def test_a_task_of_our_own_speaks_chinese_and_any_other_its_own_words(task):
    for text in (task.rule, *task.classes):
        assert words.of_checkpoint("zh", text) != text
        assert words.of_checkpoint("en", text) == text
    assert words.of_checkpoint("zh", "<b>red</b>") == "<b>red</b>"


@pytest.mark.parametrize(
    ("header", "language"),
    [
        (None, "en"),
        ("", "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("de-DE,de;q=0.9,zh;q=0.5,en;q=0.7", "en"),
        ("fr", "en"),
        ("en;q=0.1, zh-TW", "zh"),
        ("*;q=x, ;;,zh", "zh"),
    ],
)
def test_the_browsers_first_language_that_the_page_speaks_is_taken(header, language):
    assert words.preferred(header) == language


def test_a_refusal_says_the_same_in_both_languages():
    refusal = words.Refusal("too_long", length=17, longest=16)

    assert str(refusal) == words.sentence("en", refusal) == "17 tokens; this checkpoint takes at most 16"
    assert words.sentence("zh", refusal) == "17 个词元；这个检查点最多接受 16 个"
    assert words.sentence("zh", ValueError("as it is")) == "as it is"
    assert words.sentence("<script>", refusal) == str(refusal)
