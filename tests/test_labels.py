"""Labels: people can read every token and tell it from the others; statistics have names, units and short numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnkit.labels import BYTES, from_bytes, group_words, meaning, number, readable, unit, words, words_and_unit
from attnkit.measures import MEASURES


def test_a_space_is_one_mark_whichever_way_a_tokenizer_writes_it():
    assert readable([" the"]) == readable(["▁the"]) == readable(["Ġthe"]) == ["␣the"]


def test_other_whitespace_and_nothing_are_visible():
    assert readable(["\t", "\n", "\r", ""]) == ["⇥", "⏎", "⇤", "∅"]


def test_byte_level_tokens_are_decoded_and_pieces_of_a_character_show_their_bytes():
    tokens = ["Ġthe", "Ċ", "Ã©", "ðŁĺ", "Ģ", "<|endoftext|>"]  # 😀 is F0 9F 98 80, split after its third byte

    assert readable(tokens) == ["␣the", "⏎", "é", "<F09F98>", "<80>", "<|endoftext|>"]


def test_a_piece_of_a_character_needs_no_space_beside_it_to_be_seen():
    assert readable(["ðŁĺ", "Ģ"]) == ["<F09F98>", "<80>"]


def test_a_byte_of_sentencepiece_shows_its_byte():
    assert readable(["<0xF0>", "<0x0A>"]) == ["<F0>", "<0A>"]


def test_berts_continuation_mark_stays():
    assert readable(["##ing"]) == ["##ing"]


@pytest.mark.parametrize("tokens", [["Łódź", "Ģ"], ["naïve", "é"], ["$x$", "_x", r"$\frac$"], ["0", "1"]])
def test_text_that_is_no_tokens_of_bytes_stays_as_it_is(tokens):
    assert readable(tokens) == tokens


def test_what_cannot_be_seen_is_a_code():
    assert readable(["a\u200bb", "\ufffd", "\ud800"]) == ["a U+200B b", "U+FFFD", "U+D800"]


def test_what_the_font_has_not_is_a_code():
    assert readable(["中文", "a中"], drawable=str.isascii) == ["U+4E2D U+6587", "a U+4E2D"]


def test_long_labels_end_in_an_ellipsis():
    assert readable(["x" * 16, "x" * 17]) == ["x" * 16, "x" * 15 + "…"]


def test_the_byte_alphabet_is_gpt2s():
    """Its published signs: Ġ for a space, Ċ for the end of a line, and a letter for each of the 256 bytes."""
    assert (BYTES["Ġ"], BYTES["Ċ"], BYTES["A"]) == (0x20, 0x0A, 0x41)
    assert sorted(BYTES.values()) == list(range(256))


@given(st.text())
def test_decoding_undoes_the_byte_alphabet(text):
    letters = {byte: letter for letter, byte in BYTES.items()}

    assert from_bytes("".join(letters[byte] for byte in text.encode())) == text


def test_every_statistic_has_a_name_and_a_meaning():
    for statistic in [*MEASURES, "token_weight[0]", "entropy_of_mean", "positional_share"]:
        assert words(statistic) != statistic
        assert "_" not in words(statistic)
        assert meaning(statistic)


def test_a_token_of_a_statistic_is_made_readable():
    assert words("token_weight[ ]") == "Weight on token ␣"
    assert words("token_weight[NA]") == "Weight on token NA"


def test_the_unit_is_said_once():
    assert words_and_unit("entropy") == "Entropy (nats)"
    assert words_and_unit("effective_keys") == "Effective number of keys"
    assert (unit("token_weight[a]"), unit("entropy_of_mean"), unit("positional_share")) == ("weight", "nats", "")


def test_an_unknown_statistic_is_named_by_its_own_name():
    assert (words("something_new"), meaning("something_new")) == ("Something new", "")


def test_only_the_first_equals_sign_of_a_group_is_the_tables_own():
    assert [group_words(g) for g in ("all", "label=a=b", "correct")] == ["all sequences", "label: a=b", "correct"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.0625, "0.0625"),
        (2.7, "2.70"),
        (16.0, "16.0"),
        (123.4, "123"),
        (999.7, "1,000"),
        (-0.29, "−0.290"),
        (0.00012, "1e−04"),
        (-65536.0, "−65,536"),
    ],
)
def test_numbers_have_three_digits_that_matter(value, text):
    assert number(value) == text
