"""Every head over the whole set, in a real Chromium: sorted, and one click from a row to its head and back."""

import os
import re
import shutil

import numpy as np
import pytest
from playwright.sync_api import expect
from safetensors.torch import load_file, save_file

from attnkit.reference import Reference
from tests.browsing import large, open_large, type_in
from tests.serving import CHROMIUM, add_reference

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM and not os.environ.get("CI"), reason="no chromium on this machine"),
]


@pytest.fixture
def table(page):
    page.get_by_text("Every head over all 500 sequences of length 16").click()
    expect(page.locator(".set tbody tr")).to_have_count(8)
    return page.locator(".set table")


def expect_order(table, heads):
    expect(table.locator("tbody th")).to_have_text(list(heads))


def means(checkpoints, name):
    """Of a column, head by head, layer by layer."""
    known = Reference.load(checkpoints / "majority")
    return known.means[:, :, list(known.columns).index(name)].flatten()


W_O = "layers.0.attn.W_o.weight"
HEADS = np.array([f"layer {layer}, head {head}" for layer in range(2) for head in range(4)])


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Distance", "distance"),
        ("Loss increase without it (nats)", "loss_increase"),
        ("Positional share", "positional_share"),
    ],
)
def test_the_table_has_the_means_of_every_head_and_what_each_is_worth(table, checkpoints, title, name):
    expect_order(table, HEADS)
    column = table.locator("thead th").all_inner_texts().index(title)
    shown = [row.locator("th, td").nth(column).inner_text() for row in table.locator("tbody tr").all()]

    assert [float(text.replace("−", "-")) for text in shown] == pytest.approx(means(checkpoints, name), rel=0.006)


def test_a_heading_sorts_by_its_column_both_ways_and_the_first_gives_the_order_back(table, checkpoints):
    order = means(checkpoints, "output_norm").argsort(kind="stable")
    heading = table.get_by_role("button", name="Length of the output")
    heading.click()
    expect(table.get_by_role("columnheader", name="Length of the output").last).to_have_attribute(
        "aria-sort", "descending"
    )
    expect_order(table, HEADS[order[::-1]])
    expect(heading).to_be_focused()
    expect(table.locator("th.spread")).to_have_text("distribution: Length of the output")
    table.page.keyboard.press("Enter")
    expect_order(table, HEADS[order])
    table.get_by_role("button", name="head", exact=True).click()

    expect_order(table, HEADS)


def test_a_click_goes_from_a_row_to_its_head_and_back(table, page):
    table.get_by_role("button", name="layer 1, head 2").click()
    expect(page.locator(".large h2")).to_have_text("layer 1, head 2")
    expect(large(page)).to_be_in_viewport(ratio=0.5)
    expect(table.locator("tr.selected th")).to_have_text("layer 1, head 2")
    page.get_by_role("button", name="among all heads").click()

    expect(table.get_by_role("button", name="layer 1, head 2")).to_be_focused()
    expect(table.locator("tr.selected")).to_be_in_viewport()


def test_a_column_without_a_distribution_is_drawn_as_bars(table, checkpoints):
    table.get_by_role("button", name="Loss increase without it").click()
    expect(table.locator("th.spread")).to_have_text("Loss increase without it (nats)")
    worth = means(checkpoints, "loss_increase")
    low, high = min(0, *worth), max(0, *worth)
    bars = table.locator(".spread b").evaluate_all(
        "bars => bars.map((b) => (100 * b.getBoundingClientRect().width) / b.parentNode.getBoundingClientRect().width)"
    )

    assert bars == pytest.approx(100 * np.abs(np.sort(worth)[::-1]) / (high - low), abs=0.5)


def test_a_large_head_stands_over_the_whole_set(page, checkpoints):
    """Its worth in words; its mean map; its largest mean weight by offset; where this sequence stands."""
    known = Reference.load(checkpoints / "majority")
    lost, loss = known.means[0, 1, :2]
    profile = {k: np.diagonal(known.mean_attention[0, 1], k).mean() for k in range(-15, 16)}
    most = max(profile, key=profile.get)
    open_large(page, 0, 1)
    type_in(page, "1" * 16)
    whole = page.locator(".overall")
    whole.get_by_role("combobox", name="statistic").select_option("Weight on token 1")

    expect(whole.locator(".worth")).to_have_text(
        f"Without it {100 * lost:.1f} % of the answers are lost, and the loss changes by {loss:+.3f} nats.".replace(
            "-", "−"
        )
    )
    expect(whole.get_by_role("img", name=re.compile("^mean map, largest weight"))).to_be_visible()
    expect(whole.get_by_role("img", name=re.compile("^mean weight by offset"))).to_have_accessible_name(
        f"mean weight by offset, key − query, largest weight {profile[most]:.4f} ({most})"
    )
    expect(whole.get_by_role("img", name=re.compile("^Weight on token 1"))).to_have_accessible_name(
        "Weight on token 1, here 1.00"
    )


def test_a_link_to_a_head_opens_it_without_a_fault(window, address):
    page, faults = window(), []
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.goto(f"{address}/?head=1.2")
    expect(page.locator(".large h2")).to_have_text("layer 1, head 2")
    page.close()

    assert faults == []


def test_the_way_to_the_table_opens_it(page):
    open_large(page, 0, 3)
    page.get_by_role("button", name="among all heads").click()

    expect(page.locator(".set tr.selected th")).to_have_text("layer 0, head 3")
    expect(page.locator(".set tr.selected")).to_be_in_viewport()


def test_each_distribution_has_a_dot_where_this_sequence_stands(table, page):
    """All ones: the weight on ones is 1 in every head, more than in the set, so that each dot is at the right end."""
    type_in(page, "1" * 16)
    table.get_by_role("button", name="Weight on token 1").click()
    expect(page.locator(".attention")).to_have_attribute("data-usual", re.compile("1" * 16))
    dots = table.locator(".here:visible")

    expect(dots).to_have_count(8)
    assert dots.evaluate_all("dots => dots.map((dot) => dot.style.left)") == ["100%"] * 8


def test_a_number_that_is_written_with_commas_has_its_dot_too(open_page, site):
    """Outputs of the first layer that are thousands long."""
    folder = site / "checkpoints" / "loud"
    shutil.copytree(site / "checkpoints" / "majority", folder)
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {W_O: 1e5 * weights[W_O]}, folder / "model.safetensors")
    add_reference(folder)
    page = open_page(query="&checkpoint=loud")
    page.get_by_text("Every head over all 500 sequences").click()
    page.locator(".set").get_by_role("button", name="Length of the output").click()

    expect(page.locator(".set .here:visible")).to_have_count(8)
    shutil.rmtree(folder)


def test_the_table_scrolls_inside_itself_on_a_phone(open_page):
    page = open_page(width=390, height=844, has_touch=True, is_mobile=True)
    page.get_by_text("Every head over all 500 sequences").tap()
    expect(page.locator(".set tbody tr")).to_have_count(8)

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator(".scroll").evaluate("box => box.scrollWidth > box.clientWidth")
