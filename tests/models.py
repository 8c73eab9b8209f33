"""Small random transformers models of many architectures, with odd sizes so that swapped axes fail."""

import pytest

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'attnkit[hf]'")

from copy import deepcopy  # noqa: E402
from itertools import product  # noqa: E402

import torch  # noqa: E402
from transformers import (  # noqa: E402
    AlbertConfig,
    AutoModel,
    BartConfig,
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    ModernBertConfig,
    Qwen3Config,
    RobertaConfig,
    T5Config,
    ViTConfig,
)

VOCAB, D, H, LAYERS, LONGEST = 97, 15, 3, 2, 64
BERT_LIKE = {
    "vocab_size": VOCAB,
    "hidden_size": D,
    "num_attention_heads": H,
    "num_hidden_layers": LAYERS,
    "intermediate_size": 7,
    "max_position_embeddings": LONGEST,
}
IN_GROUPS = BERT_LIKE | {"hidden_size": 24, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 4}

CONFIGS = {
    "bert": BertConfig(**BERT_LIKE),
    "roberta": RobertaConfig(**BERT_LIKE),
    "electra": ElectraConfig(**BERT_LIKE, embedding_size=11),
    "albert": AlbertConfig(**BERT_LIKE, embedding_size=11),
    "distilbert": DistilBertConfig(
        vocab_size=VOCAB, dim=D, n_heads=H, n_layers=LAYERS, hidden_dim=7, max_position_embeddings=LONGEST
    ),
    "modernbert": ModernBertConfig(
        **BERT_LIKE | {"hidden_size": 18},
        local_attention=4,
        global_attn_every_n_layers=2,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        cls_token_id=1,
        sep_token_id=2,
    ),
    "gpt2": GPT2Config(vocab_size=VOCAB, n_embd=D, n_head=H, n_layer=LAYERS, n_inner=7, n_positions=LONGEST,
                       bos_token_id=1, eos_token_id=2),
    "llama": LlamaConfig(**IN_GROUPS),
    "qwen3": Qwen3Config(**IN_GROUPS, use_sliding_window=True, sliding_window=3, max_window_layers=1),
    "gemma2": Gemma2Config(**IN_GROUPS, query_pre_attn_scalar=4, sliding_window=3, attn_logit_softcapping=0.5),
    "bart": BartConfig(
        vocab_size=VOCAB,
        d_model=D,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=H,
        decoder_attention_heads=H,
        encoder_ffn_dim=7,
        decoder_ffn_dim=7,
        max_position_embeddings=LONGEST,
    ),
    "t5": T5Config(vocab_size=VOCAB, d_model=D, d_kv=4, num_heads=H, num_layers=LAYERS, d_ff=7),
    "vit": ViTConfig(
        hidden_size=D, num_attention_heads=H, num_hidden_layers=LAYERS, intermediate_size=7, image_size=8, patch_size=4
    ),
}  # fmt: skip
CAUSAL = ("gpt2", "llama", "qwen3", "gemma2")
TWO_PARTS = ("bart", "t5")
HEADS = list(product(range(LAYERS), range(H)))  # as every table counts them


def build(name, **changes):
    """A random model in eval mode, its weights large enough that its heads are far from uniform."""
    return random(deepcopy(CONFIGS[name]), **changes)


def random(config, *, std=0.5, **changes):
    torch.manual_seed(3)
    model = AutoModel.from_config(config, attn_implementation="eager", **changes).eval().requires_grad_(False)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=std)
    return model


def answering(name, architecture, **more):
    """A random model with a head that predicts."""
    torch.manual_seed(3)
    config = type(CONFIGS[name]).from_dict(CONFIGS[name].to_dict() | more)
    return getattr(transformers, architecture)._from_config(config).eval().requires_grad_(False)


def save_two_parts(name, folder, tokenizer):
    """A random model of two parts, as a folder: 2 layers in its encoder and 5 in its decoder, of 3 heads each.

    In so many layers larger weights would make much of rounding.
    """
    config = deepcopy(CONFIGS[name])
    setattr(config, {"bart": "decoder_layers", "t5": "num_decoder_layers"}[name], 5)
    config.decoder_start_token_id = {"bart": 2, "t5": 0}[name]
    for part in (random(config, std=0.3), tokenizer):
        part.save_pretrained(folder)
    return folder


def inputs(name, side="right", lengths=(7, 3, 5)):
    """A batch of sequences of different lengths with their padding on a side, as the model takes it."""
    if name == "vit":
        return {"pixel_values": torch.randn(3, 3, 8, 8)}
    T = max(lengths)
    ids, mask = torch.randint(3, VOCAB, (len(lengths), T)), torch.zeros(len(lengths), T, dtype=torch.int64)
    for row, length in enumerate(lengths):
        mask[row, slice(T - length, T) if side == "left" else slice(0, length)] = 1
    given = {"input_ids": ids, "attention_mask": mask}
    if name in TWO_PARTS:
        given |= {"decoder_input_ids": torch.randint(3, VOCAB, (len(lengths), 4))}
    return given
