"""The page in a real Chromium: what is typed, chosen, spoken and looks like."""

import os
import re

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.browsing import ONE_MORE, TIED, answer, bits, canvas, field, grid, model_says, point_at, switch, type_in
from tests.serving import CHROMIUM, COLOURS, TORN

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM and not os.environ.get("CI"), reason="no chromium on this machine"),
]


# ---------------------------------------------------------------- question and answer


def test_typing_gives_the_class_its_probability_the_count_and_the_rule(page, checkpoints):
    sequence = "1110000111011011"
    type_in(page, sequence)
    probabilities, _ = model_says(checkpoints, "majority", bits(sequence))
    predicted = ("not majority", "majority")[probabilities[1] > probabilities[0]]

    expect(answer(page).locator(".prediction")).to_have_text(predicted)
    expect(answer(page).locator("dd")).to_have_text([f"{p:.4f}" for p in probabilities])
    expect(answer(page)).to_contain_text("10 of 16 are ones. By the rule: majority.")
    expect(answer(page)).to_contain_text("agrees" if predicted == "majority" else "wrong here")
    expect(answer(page)).to_contain_text("more than half of its tokens are ones; a tie, such as 8 of 16, is not")


def test_each_key_press_is_answered(page):
    field(page).fill("")
    for typed in ("1", "10", "101"):
        field(page).press(typed[-1])
        expect(answer(page)).to_have_attribute("data-sequence", typed)
        expect(grid(page)).to_have_attribute("data-tokens", " ".join(typed))
    expect(answer(page)).to_contain_text("3 tokens: the model was trained on sequences of 16")


def test_random_draws_a_sequence_and_answers_it(page):
    expect(field(page)).to_have_value(ONE_MORE)
    page.get_by_role("button", name="random").click()
    expect(field(page)).not_to_have_value(ONE_MORE)

    expect(field(page)).to_have_value(re.compile("^[01]{16}$"))
    expect(answer(page)).to_have_attribute("data-sequence", field(page).input_value())


def test_an_example_is_one_click_away(page):
    page.get_by_role("button", name="a tie: 8 of 16").click()

    expect(answer(page)).to_have_attribute("data-sequence", TIED)
    expect(answer(page)).to_contain_text("8 of 16 are ones. By the rule: not majority.")


@pytest.mark.parametrize(
    ("sequence", "sentence"),
    [
        ("", "the sequence is empty"),
        ("0120", "character '2' at position 3"),
        ("1" * 17, "17 tokens; this checkpoint takes at most 16"),
        ("<img src=x onerror=alert(1)>", "character '<' at position 1"),
    ],
)
def test_a_mistake_is_named_under_the_field_and_the_old_answer_fades(page, sequence, sentence):
    field(page).fill(sequence)

    expect(page.locator(".problem")).to_contain_text(sentence)
    expect(page.locator("#answer")).not_to_have_css("opacity", "1")
    type_in(page, TIED)
    expect(page.locator(".problem")).to_have_count(0)
    expect(page.locator("#answer")).to_have_css("opacity", "1")


# ---------------------------------------------------------------- checkpoints


def choose(page, name):
    page.get_by_label("Checkpoint", exact=True).click()
    page.get_by_test_id("dropdown-option").filter(has_text=name).click()


def test_another_checkpoint_answers_in_its_own_words_shown_as_they_are(page, checkpoints):
    """Its vocabulary and classes are full of markup and template code, which must do nothing."""
    choose(page, COLOURS)
    expect(page.locator(".head")).to_have_count(6)
    expect(field(page)).to_have_value(re.compile("^[a<&]{5}$"))
    type_in(page, "a<&a<")
    probabilities, _ = model_says(checkpoints, COLOURS, [0, 1, 2, 0, 1])

    expect(answer(page).locator("dt")).to_have_text(["<b>red</b>", "${1+1}"])
    expect(answer(page).locator("dd")).to_have_text([f"{p:.4f}" for p in probabilities])
    expect(answer(page)).to_contain_text("2 × a, 2 × <, 1 × &.")
    expect(answer(page)).to_contain_text("<i>None</i>.")
    point_at(page, canvas(page, 0, 0), 1, 2, T=5)
    expect(page.locator(".tip")).to_contain_text("query 1 ‘<’ → key 2 ‘&’")
    field(page).fill("b")
    expect(page.locator(".problem")).to_contain_text("not in the vocabulary {a,<,&}")


def test_what_was_typed_stays_where_the_other_checkpoint_can_take_it(page):
    choose(page, COLOURS)
    expect(field(page)).to_have_value(re.compile("^[a<&]{5}$"))
    type_in(page, "a<")
    choose(page, "majority")
    expect(field(page)).to_have_value(ONE_MORE)
    expect(page.locator(".head")).to_have_count(8)


def test_a_broken_checkpoint_is_named_and_left_out(page):
    expect(page.locator("#broken")).to_contain_text(TORN)
    expect(page.locator("#broken")).to_contain_text("config.json: is not JSON")
    page.get_by_label("Checkpoint", exact=True).click()

    expect(page.get_by_test_id("dropdown-option")).to_have_text([re.compile("majority"), re.compile(COLOURS)])


def test_without_a_checkpoint_the_page_says_how_to_make_one_and_finds_it_later(open_page, checkpoints, tmp_path):
    aside = [folder.rename(tmp_path / folder.name) for folder in checkpoints.iterdir()]
    page = open_page(drawn=False)
    expect(page.locator("#none-yet")).to_contain_text("make train")
    expect(field(page)).to_be_hidden()
    for folder in aside:
        folder.rename(checkpoints / folder.name)
    page.reload()

    expect(grid(page)).to_be_visible()
    expect(page.locator("#none-yet")).to_be_hidden()


def test_a_checkpoint_that_went_away_is_told_in_plain_words(page, checkpoints, tmp_path):
    choose(page, COLOURS)
    expect(page.locator(".head")).to_have_count(6)
    (checkpoints / COLOURS).rename(tmp_path / "away")
    page.get_by_role("button", name="random").click()
    expect(page.get_by_test_id("toast-text").first).to_contain_text(
        f"checkpoint: got '{COLOURS}', allowed is {TORN}, majority"
    )
    (tmp_path / "away").rename(checkpoints / COLOURS)


# ---------------------------------------------------------------- languages


def test_the_browsers_language_is_spoken_first_and_the_other_is_one_click_away(open_page):
    page = open_page(locale="zh-CN")

    expect(page.get_by_role("heading", name="注意力头在看什么？")).to_be_visible()
    expect(page.locator("#sequence")).to_contain_text("序列")
    expect(field(page)).to_have_value(ONE_MORE)
    expect(page.locator(".answer")).to_contain_text("16 个中有 9 个是 1")
    expect(page.get_by_role("switch", name="第 1 层，头 2")).to_be_visible()
    expect(page.get_by_text("哪个头在这里重要？")).to_be_visible()
    field(page).fill("012")
    expect(page.locator(".problem")).to_contain_text("第 3 个字符 '2' 不在词表 {0,1} 中")
    type_in(page, "0110")
    page.get_by_label("English").check()
    expect(page.get_by_role("heading", name="What do the heads look at?")).to_be_visible()
    expect(answer(page)).to_contain_text("2 of 4 are ones.")
    expect(switch(page, 1, 2)).to_be_visible()


# ---------------------------------------------------------------- links


def test_a_link_restores_the_view(open_page, checkpoints):
    page = open_page(query="&checkpoint=majority&sequence=1100101&off=0.1+1.3&language=zh")

    expect(answer(page)).to_have_attribute("data-sequence", "1100101")
    expect(grid(page)).to_have_attribute("data-off", "0.1 1.3")
    expect(page.get_by_label("中文")).to_be_checked()


@pytest.mark.parametrize("query", ["&sequence=012&off=9.9", "&checkpoint=../x&off=<b>", "&language=xx&replacement=x"])
def test_a_link_that_cannot_be_followed_opens_the_page_as_it_is(open_page, query):
    expect(answer(open_page(query=query))).to_have_attribute("data-sequence", ONE_MORE)


# ---------------------------------------------------------------- looks


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everything_that_is_read_stands_out_from_its_background(open_page, theme):
    """WCAG's 4.5 : 1, measured on the computed colours of every text on the page."""
    page = open_page(theme=theme)
    canvas(page, 0, 1).click()
    expect(page.locator(".ranks li")).to_have_count(5)
    expect(page.locator(".statistics td").first).to_be_visible()
    page.get_by_label("each head its own").check()
    expect(page.locator(".legend .top")).to_have_text("each head’s largest")
    texts = page.evaluate(
        """() => {
            const solid = (element) => {
                for (let e = element; e; e = e.parentElement) {
                    const colour = getComputedStyle(e).backgroundColor;
                    if (!colour.endsWith(", 0)")) return colour;
                }
            };
            return [...document.querySelectorAll("main *")]
                .filter((e) => e.checkVisibility() && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
                .map((e) => [e.textContent.trim().slice(0, 30), getComputedStyle(e).color, solid(e)]);
        }"""
    )

    assert len(texts) > 30
    assert [(text, contrast(ink, paper)) for text, ink, paper in texts if contrast(ink, paper) < 4.5] == []


def contrast(*colours):
    light = sorted(luminance([int(float(x)) for x in re.findall(r"[\d.]+", colour)[:3]]) for colour in colours)
    return (light[1] + 0.05) / (light[0] + 0.05)


def luminance(rgb):
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in (c / 255 for c in rgb)]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def test_a_phone_needs_no_sideways_scrolling_and_a_tap_opens_a_head(open_page):
    page = open_page(width=390, height=844, has_touch=True, is_mobile=True)
    canvas(page, 1, 1).tap()
    expect(page.locator(".large .picture canvas")).to_be_visible()

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert canvas(page, 0, 0).bounding_box()["width"] > 140


@pytest.mark.parametrize("language", ["en", "zh"])
def test_on_a_phone_the_introduction_has_the_whole_width_and_the_languages_stand_over_it(open_page, language):
    page = open_page(width=390, height=844, is_mobile=True, query=f"&language={language}")
    intro, field_box, languages = (page.locator(part).bounding_box() for part in ("#intro", "#sequence", "#language"))

    assert intro["width"] >= field_box["width"]
    assert languages["y"] + languages["height"] <= intro["y"]
