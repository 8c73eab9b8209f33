"""A transformers model and its tokenizer, from a folder or a name on the hub."""

from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
)

PATIENCE = 2.0  # seconds that the hub has to answer, once: its own library tries for twenty
UNLIMITED = 1 << 20  # tokens: what a tokenizer's limit beyond means is that there is none


def load(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model, in eval mode, and the tokenizer of a folder or a hub name. No code that comes with it is run.

    The model is what its config says it was saved as, if that is a classifier or a causal language model, else the
    body alone. Raises ValueError, in one line, where there is no such model, neither on this machine nor on the hub.
    """
    here = folder_of(name)
    if here is None:
        ask_hub(name)
    given = {"local_files_only": here is not None, "trust_remote_code": False}
    try:
        config = AutoConfig.from_pretrained(name, **given)
        model = auto_class(config).from_pretrained(name, **given)
        return model.eval(), AutoTokenizer.from_pretrained(name, **given)
    except (OSError, ValueError) as error:
        why = str(error).strip().split("\n")[0]
        raise ValueError(
            f"hf: got {name!r}: {here or 'what the hub has'} is no model that can be read ({why})"
        ) from None


def folder_of(name: str) -> Path | None:
    """Where the files of a model lie on this machine; None where they do not."""
    if Path(name).is_dir():
        return Path(name)
    try:
        config = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        raise ValueError(f"hf: got {name!r}: there is no such folder, and a name on the hub it cannot be") from None
    return Path(config).parent if isinstance(config, str) else None


def ask_hub(name: str) -> None:
    """Raise ValueError unless the hub has such a model and says so at once."""
    try:
        HfApi().model_info(name, timeout=PATIENCE)
    except Exception as error:  # which library speaks HTTP, and so what it raises, is the hub's own affair
        why = str(error).strip().split("\n")[0]
        raise ValueError(
            f"hf: got {name!r}: there is no such folder, nor a model of that name at hand, and the hub "
            f"has none or cannot be asked ({why})"
        ) from None


def auto_class(config: PreTrainedConfig) -> Any:
    """Which of transformers' auto classes loads what the config says the model was saved as."""
    saved_as = (config.architectures or [""])[0]
    if saved_as == MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES.get(config.model_type):
        return AutoModelForSequenceClassification
    if saved_as == MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type):
        return AutoModelForCausalLM
    return AutoModel


def longest_text(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """As many tokens as model and tokenizer take."""
    places = getattr(model.config, "max_position_embeddings", None) or UNLIMITED
    table = getattr(getattr(model.base_model, "embeddings", None), "position_embeddings", None)
    if isinstance(table, torch.nn.Embedding) and table.padding_idx is not None:
        places -= table.padding_idx + 1  # RoBERTa counts positions from behind its padding token's number
    return min(places, tokenizer.model_max_length, UNLIMITED)


def vocabulary(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """All tokens, by their number."""
    ids = tokenizer.get_vocab()
    return sorted(ids, key=ids.__getitem__)
