"""`python -m analysis.reference`: beside the weights it writes, of sequences of one length that have labels."""

import pytest

from analysis import reference as command
from attnkit.reference import Reference
from tests.serving import fill


@pytest.fixture
def checkpoints(tmp_path):
    return fill(tmp_path / "checkpoints")


def test_the_command_writes_beside_the_weights_and_says_what(checkpoints, capsys):
    command.main(["--checkpoint", str(checkpoints / "majority"), "--split", "test"])

    assert "500 sequences" in capsys.readouterr().out
    assert int(Reference.load(checkpoints / "majority").count) == 500


def test_sequences_without_labels_have_no_reference(tmp_path, checkpoints):
    data = tmp_path / "bare.csv"
    data.write_text("sequence\n0101\n0110\n")
    with pytest.raises(ValueError, match=r"^data: has no labels"):
        command.main(["--checkpoint", str(checkpoints / "majority"), "--data", str(data)])


def test_sequences_of_several_lengths_have_no_reference(tmp_path, checkpoints):
    data = tmp_path / "mixed.csv"
    data.write_text("sequence,label\n0101,majority\n011,majority\n")
    with pytest.raises(ValueError, match=r"^data: has sequences of 3 and of 4 tokens; allowed is one length$"):
        command.main(["--checkpoint", str(checkpoints / "majority"), "--data", str(data)])
