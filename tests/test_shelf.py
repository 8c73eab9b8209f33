"""What the page offers: the checkpoints in its folder and nothing else, and sequences to start from."""

import os

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnkit.checkpoint import TaskInfo
from attnkit.data import DataConfig
from demo import samples, shelf, views
from tests.serving import ARTICLE, COLOURS, ODD, ODD_TASK, TORN, fill, write, write_grown


@pytest.fixture(autouse=True)
def checkpoints(tmp_path, monkeypatch):
    monkeypatch.setattr(shelf, "CHECKPOINTS", tmp_path / "checkpoints")
    return fill(tmp_path / "checkpoints")


def test_the_shelf_has_what_opens_and_names_what_does_not(checkpoints, tmp_path):
    (checkpoints / ".unfinished").mkdir()
    (checkpoints / "empty").mkdir()
    (checkpoints / "notes.txt").write_text("no folder, no checkpoint")
    names, broken = shelf.shelf()

    assert names == ["majority", COLOURS]
    assert sorted(broken) == [TORN, "empty"]
    assert "config.json: is not JSON" in broken[TORN]
    assert not any(str(tmp_path) in reason for reason in broken.values())


def test_an_empty_shelf_and_none_at_all_are_no_error(checkpoints, monkeypatch, tmp_path):
    (tmp_path / "bare").mkdir()
    for folder in (tmp_path / "bare", tmp_path / "absent"):
        monkeypatch.setattr(shelf, "CHECKPOINTS", folder)

        assert shelf.shelf() == ([], {})
        with pytest.raises(ValueError, match="`make train` makes one"):
            shelf.open_checkpoint("majority")


@pytest.mark.parametrize("name", ["../outside", "/etc", "", ".", "..", "majority/../majority", "majority/", None, 7])
def test_nothing_outside_the_shelf_opens(checkpoints, name, tmp_path):
    write(tmp_path / "outside", ODD, ODD_TASK, DataConfig(), seed=3)

    with pytest.raises(ValueError, match=r"^checkpoint: got .*, allowed is <b>torn, <i>colours, majority$"):
        shelf.open_checkpoint(name)


def test_weights_that_carry_code_stay_closed(checkpoints, tmp_path):
    """A model.safetensors that is really a pickle, and a .pt, which is not looked at in a folder."""

    class Marker:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "marker"),)

    write(checkpoints / "trap", ODD, ODD_TASK, DataConfig(), seed=4)
    torch.save({"x": Marker()}, checkpoints / "trap" / "model.safetensors")
    torch.save({"x": Marker()}, checkpoints / "trap" / "model.pt")

    assert "trap" in shelf.shelf()[1]
    assert not (tmp_path / "marker").exists()


def test_a_checkpoint_that_was_trained_again_is_read_again(checkpoints):
    before = views.read("majority", "0110").weights
    write(checkpoints / "majority", ARTICLE, TaskInfo(), DataConfig(), seed=5)

    assert not np.array_equal(before, views.read("majority", "0110").weights)


# ---------------------------------------------------------------- on the way through training


def test_a_name_with_a_step_opens_the_weights_after_so_many_steps(checkpoints):
    models = write_grown(checkpoints / "grown")
    for name, step in (("grown@0", 0), ("grown@5", 5), ("grown@20", 20), ("grown", 20)):
        expected = models[step](torch.tensor([[0, 1, 1, 0]]))[0][0]
        assert views.read(name, "0110").logits.tolist() == pytest.approx(expected.tolist(), abs=1e-6)


@pytest.mark.parametrize("name", ["grown@6", "grown@", "grown@05", "grown@-5", "grown@../x", "majority@0", "grown@0@0"])
def test_a_step_of_which_nothing_is_kept_is_refused(checkpoints, name):
    write_grown(checkpoints / "grown")

    with pytest.raises(ValueError, match=r"^step: got .*, of this checkpoint are kept |^checkpoint: got "):
        views.read(name, "0110")


def test_a_folder_whose_name_looks_like_a_step_is_still_a_folder(checkpoints):
    write_grown(checkpoints / "grown")
    write(checkpoints / "grown@5", ODD, ODD_TASK, DataConfig(), seed=8)

    assert views.read("grown@5", "a<").info.task.name == "colours"


# ---------------------------------------------------------------- sequences to start from


def test_examples_stand_on_the_edge_of_the_rule():
    ones = {kind: sequence.count("1") for kind, sequence in samples.near_ties("majority").items()}

    assert ones == {"tie": 8, "sorted": 8, "more": 9, "fewer": 7, "all": 16}
    assert {len(sequence) for sequence in samples.near_ties("majority").values()} == {16}


def test_an_odd_length_has_no_tie(checkpoints):
    write(checkpoints / "seven", ARTICLE, TaskInfo(), DataConfig(length=7), seed=6)
    ones = {kind: sequence.count("1") for kind, sequence in samples.near_ties("seven").items()}

    assert ones == {"more": 4, "fewer": 3, "all": 7}


def test_another_task_has_no_near_ties():
    assert samples.near_ties(COLOURS) == {}


@given(st.integers(1, 60).flatmap(lambda length: st.tuples(st.integers(0, length), st.just(length))))
def test_spread_has_the_ones_asked_for_and_no_gap_longer_than_need_be(case):
    ones, length = case
    bits = samples.spread(ones, length)

    assert (len(bits), bits.count("1")) == (length, ones)
    inner = bits.strip("0").split("1")[1:-1]
    assert not inner or max(map(len, inner)) - min(map(len, inner)) <= 1


def test_a_random_sequence_is_one_of_the_task_and_not_always_the_same():
    drawn = {samples.random_sequence(COLOURS) for _ in range(40)}

    assert all(len(sequence) == 5 and set(sequence) <= set("a<&") for sequence in drawn)
    assert len(drawn) > 20  # of 243: forty draws with fewer than 21 different ones do not happen
