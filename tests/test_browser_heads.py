"""The heads in a real Chromium: maps, switches and tokens are pointed at, pressed and saved."""

import os
import re
import shutil

import numpy as np
import pytest
from playwright.sync_api import expect

from attnkit.reference import Reference
from tests.browsing import (
    ONE_MORE,
    TIED,
    answer,
    bits,
    canvas,
    field,
    grid,
    in_canvas,
    model_says,
    model_without,
    point_at,
    switch,
    tip,
    type_in,
)
from tests.serving import CHROMIUM, write_spaced

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM and not os.environ.get("CI"), reason="no chromium on this machine"),
]


# ---------------------------------------------------------------- every head


@pytest.mark.parametrize(("layer", "head", "query", "key"), [(0, 0, 0, 0), (0, 3, 2, 13), (1, 1, 15, 0), (1, 2, 7, 15)])
def test_a_cell_under_the_pointer_tells_its_query_key_and_weight(page, checkpoints, layer, head, query, key):
    """The corners, and cells whose mirror image has another weight."""
    sequence = "1110000111011011"
    type_in(page, sequence)
    _, weights = model_says(checkpoints, "majority", bits(sequence))
    point_at(page, canvas(page, layer, head), query, key, T=16)

    expect(tip(page)).to_contain_text(f"query {query} ‘{sequence[query]}’ → key {key} ‘{sequence[key]}’")
    expect(tip(page)).to_contain_text(f"layer {layer}, head {head}")
    told = float(tip(page).locator(".weight").inner_text())
    assert told == pytest.approx(weights[layer, head, query, key], abs=6e-5)
    page.mouse.move(2, 2)
    expect(tip(page)).to_be_hidden()


def test_colours_run_with_the_weights(page, checkpoints):
    """Read back from the canvas: the darker cell is the larger weight, in the row and column where it belongs."""
    sequence = "1110000111011011"
    type_in(page, sequence)
    _, weights = model_says(checkpoints, "majority", bits(sequence))
    first, second = (in_canvas(canvas(page, 1, 2), at, at, T=16)["x"] for at in (0, 1))
    middles = [first + i * (second - first) for i in range(16)]  # as far from the left as from the top
    places = [{"x": x, "y": y} for y in middles for x in middles]
    brightness = canvas(page, 1, 2).evaluate(
        """(canvas, places) => {
            const context = canvas.getContext("2d");
            return places.map(({x, y}) => {
                const [r, g, b] = context.getImageData(x * devicePixelRatio, y * devicePixelRatio, 1, 1).data;
                return r + g + b;
            });
        }""",
        places,
    )

    assert spearman(weights[1, 2].flatten(), -np.array(brightness)) > 0.99


def spearman(a, b):
    return np.corrcoef(a.argsort().argsort(), b.argsort().argsort())[0, 1]


def test_the_scale_is_common_until_each_head_gets_its_own(page, checkpoints):
    type_in(page, ONE_MORE)
    _, weights = model_says(checkpoints, "majority", bits(ONE_MORE))
    legend, heads = page.locator(".legend .top"), page.locator(".head")

    expect(legend).to_have_text(f"{weights.max():.2f}")
    page.get_by_label("each head its own").check()
    expect(legend).to_have_text("each head’s largest")
    own = [f"0 – {top:.3f}" for top in weights.max(axis=(2, 3)).flatten()]
    assert heads.evaluate_all("heads => heads.map((head) => head.title)") == own
    page.get_by_label("one scale for all").check()
    expect(legend).to_have_text(f"{weights.max():.2f}")


def test_keys_alone_reach_a_cell_and_open_a_head(page):
    page.get_by_role("button", name=re.compile("^layer 0, head 1,")).focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    expect(page.locator(".tip")).to_contain_text(re.compile("query 1 .* key 1 "))
    page.keyboard.press("Enter")

    expect(page.locator(".large .picture canvas")).to_be_visible()


# ---------------------------------------------------------------- heads that are off


def test_a_head_that_is_switched_off_is_left_out_of_the_answer_at_once(page, checkpoints):
    type_in(page, ONE_MORE)
    for off in ([(0, 3)], [(0, 3), (1, 1)]):
        switch(page, *off[-1]).click()
        expect(grid(page)).to_have_attribute("data-off", " ".join(f"{layer}.{head}" for layer, head in off))
        probabilities = model_without(checkpoints, "majority", bits(ONE_MORE), off).softmax(0).tolist()
        expect(answer(page).locator("dd")).to_have_text([f"{p:.4f}" for p in probabilities])
    expect(answer(page)).to_contain_text("Switched off: layer 0, head 3, layer 1, head 1.")
    expect(page.get_by_role("switch", checked=False)).to_have_count(2)

    page.get_by_role("button", name="all heads on").click()
    expect(page.get_by_role("switch", checked=False)).to_have_count(0)
    probabilities, _ = model_says(checkpoints, "majority", bits(ONE_MORE))
    expect(answer(page).locator("dd")).to_have_text([f"{p:.4f}" for p in probabilities])


def test_heads_stay_off_while_one_types(page, checkpoints):
    switch(page, 1, 2).click()
    expect(grid(page)).to_have_attribute("data-off", "1.2")
    type_in(page, "1100101")
    probabilities = model_without(checkpoints, "majority", bits("1100101"), [(1, 2)]).softmax(0).tolist()

    expect(answer(page).locator("dd")).to_have_text([f"{p:.4f}" for p in probabilities])


def test_each_head_says_what_the_margin_loses_without_it_and_the_list_has_the_largest_first(page, checkpoints):
    type_in(page, ONE_MORE)
    probabilities, _ = model_says(checkpoints, "majority", bits(ONE_MORE))
    sign = 1 if probabilities[1] > probabilities[0] else -1

    def margin(off):
        logits = model_without(checkpoints, "majority", bits(ONE_MORE), off)
        return sign * float(logits[1] - logits[0])

    heads = [(layer, head) for layer in range(2) for head in range(4)]
    worth = [margin([head]) - margin([]) for head in heads]
    expect(grid(page)).to_have_attribute("data-effects", re.compile(ONE_MORE))
    notes = [number(text) for text in page.locator(".caption .note").all_inner_texts()]
    assert notes == pytest.approx(worth, abs=0.0051)
    ranked = sorted(range(8), key=lambda k: -abs(worth[k]))[:5]
    expect(page.locator(".ranks li span:first-child")).to_have_text(
        ["layer {}, head {}".format(*heads[k]) for k in ranked]
    )


def number(text):
    return float(text.replace("−", "-"))


def test_a_map_shows_weights_times_values_or_the_difference_from_the_mean(page, checkpoints):
    type_in(page, TIED)
    _, weights = model_says(checkpoints, "majority", bits(TIED))
    difference = weights - Reference.load(checkpoints / "majority").mean_attention
    page.get_by_label("difference from the head’s mean map").check()
    expect(page.locator(".legend .low")).to_have_text(f"−{abs(difference).max():.2f}")
    point_at(page, canvas(page, 1, 2), 3, 9, T=16)

    expect(tip(page)).to_contain_text(f"{abs(difference[1, 2, 3, 9]):.4f}")
    page.get_by_label("weight × length of the value").check()
    expect(page.locator(".legend .low")).to_have_text("0")


def test_a_head_that_is_off_may_give_its_mean_output(page):
    type_in(page, ONE_MORE)
    switch(page, 0, 3).click()
    expect(grid(page)).to_have_attribute("data-off", "0.3")
    expect(answer(page)).to_contain_text("Switched off: layer 0, head 3.")
    nothing = answer(page).locator(".margin").inner_text()
    page.get_by_label("its mean output").check()

    expect(answer(page).locator(".margin")).not_to_have_text(nothing)


# ---------------------------------------------------------------- one button for each token


def test_a_click_on_a_token_changes_it_and_the_field_follows(page):
    type_in(page, TIED)
    page.get_by_role("button", name="position 0: 0; click for 1").click()

    expect(field(page)).to_have_value("1" + TIED[1:])
    expect(answer(page)).to_have_attribute("data-sequence", "1" + TIED[1:])
    expect(page.locator(".cells")).to_have_attribute("data-tokens", " ".join("1" + TIED[1:]))


def test_tokens_of_several_characters_are_typed_with_spaces(open_page, site):
    """And the answer is about as many tokens as the checkpoint was trained on."""
    write_spaced(site / "checkpoints" / "spaced")
    page = open_page(query="&checkpoint=spaced&sequence=red blue red redder red")
    page.get_by_role("button", name="position 1: blue; click for red").click()

    expect(field(page)).to_have_value("red red red redder red")
    expect(page.locator(".cell b")).to_have_text(["red", "red", "red", "redder", "red"])
    expect(answer(page).locator(".count")).to_have_text("4 × red, 1 × redder, 0 × blue.")
    expect(answer(page).locator(".aside")).to_have_text("<i>None</i>.")  # the rule alone
    shutil.rmtree(site / "checkpoints" / "spaced")


def test_the_buttons_follow_the_field(page):
    type_in(page, "110")

    expect(page.locator(".cell b")).to_have_text(["1", "1", "0"])


def test_each_token_says_what_flipping_it_would_do_to_the_margin(page, checkpoints):
    sequence = "1110000111011011"
    type_in(page, sequence)
    probabilities, _ = model_says(checkpoints, "majority", bits(sequence))
    sign = 1 if probabilities[1] > probabilities[0] else -1

    def margin(ids):
        logits = model_without(checkpoints, "majority", ids, [])
        return sign * float(logits[1] - logits[0])

    flipped = [[bit ^ (i == k) for i, bit in enumerate(bits(sequence))] for k in range(16)]
    expect(page.locator(".cells")).to_have_attribute("data-flips", re.compile(sequence))
    shown = [number(text) for text in page.locator(".cell .change").all_inner_texts()]
    assert shown == pytest.approx([margin(ids) - margin(bits(sequence)) for ids in flipped], abs=0.051)


def test_a_token_that_is_pointed_at_lights_its_row_and_column_in_every_head(page):
    page.locator(".cell").nth(5).hover()

    expect(page.locator(".pointing .map .band.query:visible")).to_have_count(8)
    assert page.locator(".attention").evaluate(
        "e => [e.style.getPropertyValue('--query'), e.style.getPropertyValue('--key')]"
    ) == ["5", "5"]


def test_clear_empties_the_field_and_says_what_may_be_typed(page):
    page.get_by_role("button", name="clear").click()

    expect(field(page)).to_have_value("")
    expect(page.locator(".problem")).to_contain_text("the sequence is empty")
