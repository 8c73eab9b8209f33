"""Models from a folder, from what was fetched before, or from the hub; and the words for one that is nowhere."""

import pytest

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'attnkit[hf]'")

from attnkit import pretrained
from tests.models import CONFIGS, build
from tests.texts import build_tokenizer


@pytest.fixture
def unreachable(monkeypatch):
    """A hub that nobody answers from, and the names that it was asked for."""
    asked = []

    class Hub:
        def model_info(self, name, timeout):
            asked.append((name, timeout))
            raise ConnectionError("no network\nand more lines")

    def never(*_, **__):
        raise AssertionError("transformers would try again and again")

    monkeypatch.setattr(pretrained, "HfApi", Hub)
    monkeypatch.setattr(pretrained, "try_to_load_from_cache", lambda name, file: None)
    monkeypatch.setattr(pretrained.AutoConfig, "from_pretrained", never)
    return asked


def test_a_name_that_is_nowhere_is_asked_for_once_and_told_in_one_line(unreachable):
    wanted = r"hf: got 'some/name': there is no such folder, .* the hub has none or cannot be asked \(no network\)$"
    with pytest.raises(ValueError, match=wanted):
        pretrained.load("some/name")

    assert unreachable == [("some/name", pretrained.PATIENCE)]


def test_what_cannot_be_a_name_on_the_hub_is_asked_for_nowhere(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "HfApi", None)

    with pytest.raises(ValueError, match="there is no such folder, and a name on the hub it cannot be"):
        pretrained.load(str(tmp_path / "nowhere"))


def test_a_folder_that_holds_no_model_is_named(tmp_path):
    with pytest.raises(ValueError, match=f"hf: got '{tmp_path}': {tmp_path} is no model that can be read"):
        pretrained.load(str(tmp_path))


def test_code_that_comes_with_a_model_is_never_run(tmp_path):
    """A config that names its own classes is refused without a question, even where someone could answer it."""
    (tmp_path / "config.json").write_text(
        '{"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"}}'
    )
    (tmp_path / "own.py").write_text("raise SystemExit('was run')")

    with pytest.raises(ValueError, match="is no model that can be read"):
        pretrained.load(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "saved_as"),
    [
        ("bert", "BertForSequenceClassification"),
        ("bert", "BertModel"),
        ("gpt2", "GPT2LMHeadModel"),
        ("llama", "LlamaForCausalLM"),
        ("bart", "BartModel"),
    ],
)
def test_a_model_is_loaded_as_what_it_was_saved_as(name, saved_as):
    config = type(CONFIGS[name]).from_dict(CONFIGS[name].to_dict() | {"architectures": [saved_as]})

    assert type(pretrained.auto_class(config).from_config(config)).__name__ == saved_as


def test_one_that_fills_gaps_is_loaded_without_its_head():
    config = type(CONFIGS["bert"]).from_dict(CONFIGS["bert"].to_dict() | {"architectures": ["BertForMaskedLM"]})

    assert type(pretrained.auto_class(config).from_config(config)).__name__ == "BertModel"


def words(limit):
    """A tokenizer that says how many tokens it takes."""
    tokenizer = build_tokenizer()
    tokenizer.model_max_length = limit
    return tokenizer


def test_a_text_may_be_as_long_as_model_and_tokenizer_take():
    """The models have 64 places; RoBERTa counts them from 2, behind its padding token's 1; T5 has no such table."""
    assert pretrained.longest_text(build("bert"), words(51)) == 51
    assert pretrained.longest_text(build("bert"), words(10**30)) == 64
    assert pretrained.longest_text(build("roberta"), words(10**30)) == 62
    assert pretrained.longest_text(build("t5"), words(10**30)) == pretrained.UNLIMITED
