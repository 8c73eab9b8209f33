"""A transformers model and its tokenizer, from a folder or a name on the hub."""

import re
from copy import deepcopy
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from jaxtyping import Int
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
)
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from attnkit.text import TextBatch

PATIENCE = 2.0  # seconds that the hub has to answer, once: its own library tries for twenty
STEP = re.compile(rf"{PREFIX_CHECKPOINT_DIR}-(\d+)")  # the folder of a checkpoint after so many steps
UNLIMITED = 1 << 20  # tokens: what a tokenizer's limit beyond means is that there is none


def load(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model, in eval mode, and the tokenizer of a folder or a hub name. No code that comes with it is run.

    The model is what its config says it was saved as, if that is a classifier or a language model, else the body
    alone. Raises ValueError, in one line, where there is no such model, neither on this machine nor on the hub.
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


def untrained(model: PreTrainedModel) -> PreTrainedModel:
    """The same architecture with fresh weights (seed 0), in eval mode, on the same device."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        fresh = type(model)(deepcopy(model.config))
    return fresh.to(model.device, model.dtype).eval()  # type: ignore[arg-type]  # as in analysis.texts


def trained(folder: Path) -> list[tuple[int, Path]]:
    """How many steps had been taken, and the folder, of each checkpoint that transformers' Trainer kept in `folder`,
    the earliest first. Raises ValueError where there are not two of them."""
    if not folder.is_dir():
        raise ValueError(f"hf: got {str(folder)!r}: there is no such folder; allowed is one of transformers' Trainer")
    names = {path: STEP.fullmatch(path.name) for path in folder.iterdir() if path.is_dir()}
    found = sorted((int(name[1]), path) for path, name in names.items() if name)
    if len(found) < 2:
        many = f"has {len(found) or 'none'} of the folders checkpoint-<step> that transformers' Trainer keeps"
        raise ValueError(f"hf: got {str(folder)!r}: {many}; a change takes two")
    return found


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
    if saved_as == MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES.get(config.model_type):
        return AutoModelForSeq2SeqLM
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


def takes(model: PreTrainedModel, argument: str) -> bool:
    return argument in signature(model.forward).parameters


def inputs_of(model: PreTrainedModel, batch: TextBatch) -> dict[str, Any]:
    """The texts as `model` takes them: `model(**inputs_of(model, batch))`."""
    given: dict[str, Any] = {"input_ids": batch.tokens, "attention_mask": as_numbers(batch)}
    if batch.segments is not None and takes(model, "token_type_ids"):
        given["token_type_ids"] = batch.segments
    if batch.decoder is not None:
        given |= {"decoder_input_ids": batch.decoder.tokens, "decoder_attention_mask": as_numbers(batch.decoder)}
    if takes(model, "use_cache"):
        given["use_cache"] = False
    return given


def two_tokens(model: PreTrainedModel, batch: TextBatch) -> TextBatch:
    """The last token of the first text, twice, on the model's device: a run over them tells how the model is built.

    Classifiers of two parts answer at the mark that ends a text, and take none without. Raises ValueError for a model
    of two parts, if there is no text for its decoder.
    """
    if has_two_parts(model) and batch.decoder is None:
        name = type(model).__name__
        raise ValueError(f"batches: {name} has an encoder and a decoder, and there is no text for the decoder")
    first = batch.tokens[0] if batch.mask is None else batch.tokens[0, batch.mask[0]]
    tokens = first[-1:].expand(1, 2).to(model.device)
    return TextBatch(tokens, decoder=None if batch.decoder is None else TextBatch(tokens))


def as_numbers(batch: TextBatch) -> Int[Tensor, "B T"]:
    return torch.ones_like(batch.tokens) if batch.mask is None else batch.mask.long()


def task_of(model: PreTrainedModel) -> str:
    """classification, language or embedding: what the model is for, told by its class."""
    name = type(model).__name__
    if name in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES.values():
        return "classification"
    language = (MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES)
    return "language" if any(name in of.values() for of in language) else "embedding"


def has_two_parts(model: PreTrainedModel) -> bool:
    """Has it an encoder and a decoder?"""
    return all(hasattr(model.base_model, part) for part in ("encoder", "decoder"))


def start_of(model: PreTrainedModel) -> int | None:
    """The token that the decoder of a model of two parts begins with; None of any other model."""
    if not has_two_parts(model):
        return None
    configs = (model.config, getattr(model, "generation_config", None))
    known = (getattr(config, name, None) for name in ("decoder_start_token_id", "bos_token_id") for config in configs)
    start = next((token for token in known if token is not None), None)
    if start is None:
        raise ValueError(f"model: the config of {type(model).__name__} does not say which token a decoder begins with")
    return start


def classes_of(model: PreTrainedModel) -> list[str] | None:
    """The names of what a classifier tells apart; None of any other model, and of one whose answer is a number."""
    names: dict[int, str] = model.config.id2label or {}  # type: ignore[assignment]  # by number once it is loaded
    kind = getattr(model.config, "problem_type", None) or "single_label_classification"
    if task_of(model) != "classification" or len(names) < 2 or kind != "single_label_classification":
        return None
    return [names[k] for k in range(len(names))]
