"""Every attention of a transformers model as it is: the same weights as its own eager implementation gives."""

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'attnkit[hf]'")

from transformers import DebertaV2Config, DebertaV2Model

from attnkit import hf
from tests.models import CAUSAL, CONFIGS, LAYERS, TWO_PARTS, H, build, inputs


def calls_of(model, given):
    calls = []
    with hf.observe(model, calls.append):
        output = model(**given)
    return calls, output


def eager_maps(model, given):
    """What the model itself says, by kind."""
    output = model(**given, output_attentions=True)
    names = {"attentions": "self", "encoder_attentions": "encoder", "decoder_attentions": "decoder"}
    names |= {"cross_attentions": "cross"}
    return {kind: maps for name, kind in names.items() if (maps := getattr(output, name, None))}, output


def real_rows(call, given):
    """Queries that are no padding (B, R); what stands in the others is nobody's business."""
    if call.kind not in ("self", "encoder") or "attention_mask" not in given:
        return torch.ones(call.query.shape[0], call.query.shape[2], dtype=torch.bool)
    return given["attention_mask"].bool()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", CONFIGS)
def test_weights_are_those_of_the_eager_implementation(name, side):
    model, given = build(name), inputs(name, side)
    wanted, plain = eager_maps(model, given)

    calls, output = calls_of(model, given)

    assert {kind: len(maps) for kind, maps in wanted.items()} == {
        kind: sum(call.kind == kind for call in calls) for kind in wanted
    }
    for call in calls:
        real = real_rows(call, given)
        ours, theirs = (w.transpose(1, 2)[real] for w in (call.weights, wanted[call.kind][call.layer]))
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    kept = given.get("attention_mask", torch.ones(1)).bool() if name not in TWO_PARTS else slice(None)
    if name == "vit":
        kept = slice(None)
    torch.testing.assert_close(output[0][kept], plain[0][kept], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_layers_are_numbered_as_the_model_numbers_them_in_every_pass(name):
    model, given = build(name), inputs(name)
    kinds = ["encoder", "decoder", "cross"] if name in TWO_PARTS else ["self"]

    with hf.observe(model, (calls := []).append):
        model(**given)
        model(**given)

    for kind in kinds:
        assert [call.layer for call in calls if call.kind == kind] == 2 * list(range(LAYERS))
    assert len(calls) == 2 * LAYERS * len(kinds)


@pytest.mark.parametrize("name", CONFIGS)
def test_in_bfloat16_the_weights_are_those_of_its_queries_and_keys(name):
    """The plain formula in float64 on what the model hands over; the model's own weights are only good to 2^-8."""
    model, given = build(name, dtype=torch.bfloat16), inputs(name)
    if name == "vit":
        given = {"pixel_values": given["pixel_values"].bfloat16()}
    sites = []

    def attend(site):
        sites.append(site)
        return hf.whole(site)[0].to(site.value.dtype) @ site.value

    with hf.attending(model, attend):
        model(**given)
    for site in sites:
        scores = site.query.double() @ site.key.double().transpose(-2, -1) * site.scale
        if site.softcap:
            scores = (scores / site.softcap).tanh() * site.softcap
        scores = scores if site.bias is None else scores + site.bias.double()
        allowed = site.allowed()
        if allowed is not None:
            scores = scores.masked_fill(~allowed[:, None], -1e300)
        torch.testing.assert_close(site.weights().double(), scores.softmax(dim=-1), atol=1e-5, rtol=0)
        assert site.weights().dtype == torch.float32


@pytest.mark.parametrize("name", [n for n in CONFIGS if n != "vit"])
def test_masks_that_are_made_in_blocks_are_those_that_are_made_at_once(name, monkeypatch):
    model, given = build(name), inputs(name, "left")
    at_once, _ = calls_of(model, given)
    monkeypatch.setattr(hf, "LONGEST_WHOLE", 2)

    in_blocks, _ = calls_of(model, given)

    for a, b in zip(at_once, in_blocks, strict=True):
        torch.testing.assert_close(a.weights, b.weights, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", CONFIGS)
def test_causal_attention_is_known_as_such(name, monkeypatch):
    for longest in (512, 2):
        monkeypatch.setattr(hf, "LONGEST_WHOLE", longest)
        sites = []
        model = build(name)
        with hf.attending(model, lambda site: (sites.append(site), hf.whole(site)[1])[1]):  # noqa: B023
            model(**inputs(name))

        assert all(site.causal == (name in CAUSAL or site.kind == "decoder") for site in sites)


@pytest.mark.parametrize("name", CONFIGS)
def test_each_heads_slice_of_the_output_projection_adds_up_to_what_the_layer_adds(name):
    """Σ_h o_h W_O^h is what the model's own projection gives, without its bias."""
    model, given = build(name), inputs(name)
    calls, _ = calls_of(model, given)
    call = calls[0]
    projections = [m for n, m in model.named_modules() if n.rpartition(".")[2] in hf.PROJECTIONS]
    seen = {}

    def see(module, inputs, output):
        seen.setdefault(module, (inputs[0], output))  # ALBERT's layers share one

    hooks = [m.register_forward_hook(see) for m in projections]
    model(**given)
    for hook in hooks:
        hook.remove()

    heads = call.output.transpose(1, 2).flatten(2)
    projection, (_, output) = next((m, io) for m, io in seen.items() if io[0].shape == heads.shape)
    bias = getattr(projection, "bias", None)
    added = torch.einsum("bhre,hed->brd", call.output, call.w_o)
    torch.testing.assert_close(added, output - (0 if bias is None else bias), atol=1e-4, rtol=1e-4)
    assert call.w_o.shape[0] == (6 if name in ("llama", "qwen3", "gemma2") else H)


@pytest.mark.parametrize("name", ["bert", "bart"])
def test_the_model_is_as_before_even_when_the_context_breaks(name):
    model, given = build(name), inputs(name)
    before = model(**given, output_attentions=True)

    with pytest.raises(RuntimeError, match="stop"), hf.observe(model, lambda call: None):
        raise RuntimeError("stop")

    after = model(**given, output_attentions=True)
    assert model.config._attn_implementation == "eager"
    assert torch.equal(before[0], after[0])
    assert not model._forward_pre_hooks


def test_what_is_changed_is_the_heads_output_and_nothing_else():
    model, given = build("bert"), inputs("bert")
    plain, nothing = model(**given)[0], []

    def unchanged(site, output):
        nothing.append(output)
        return output

    with hf.intervene(model, unchanged):
        torch.testing.assert_close(model(**given)[0], plain, atol=1e-5, rtol=1e-5)
    with hf.intervene(model, lambda site, output: output * (site.layer != 1)):
        without = model(**given)[0]
    model.encoder.layer[1].attention.output.dense.weight.zero_()
    torch.testing.assert_close(without, model(**given)[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rows", [None, 1, 2])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_fused_outputs_are_those_of_the_maps(name, rows, monkeypatch):
    """Of short texts all rows at once, of long ones so many at a time."""
    if rows:
        monkeypatch.setattr(hf, "LONGEST_WHOLE", 0)
        monkeypatch.setattr(hf, "ROWS", rows)
    model, given = build(name), inputs(name)
    sites = []
    with hf.attending(model, lambda site: (sites.append(site), hf.whole(site)[1])[1]):
        model(**given)

    for site in sites:
        allowed = site.allowed()
        sees = slice(None) if allowed is None else allowed.any(dim=-1).expand(len(site.query), -1)
        ours, maps = (output.transpose(1, 2)[sees] for output in (hf.fused(site), hf.whole(site)[1]))
        torch.testing.assert_close(ours, maps, atol=1e-5, rtol=1e-4)


def test_gradients_of_long_rows_are_those_of_whole_maps(monkeypatch):
    monkeypatch.setattr(hf, "ROWS", 3)
    parts = (torch.randn(2, H, 7, 5) for _ in range(3))
    site = hf.Site("self", 0, *(part.requires_grad_() for part in parts), None, True, 0.5)
    towards = torch.randn(2, H, 7, 5)
    found = []
    for longest in (7, 0):
        monkeypatch.setattr(hf, "LONGEST_WHOLE", longest)
        output = hf.fused(site)
        found.append(torch.autograd.grad((output * towards).sum(), (site.query, site.key, site.value)))

    for whole, long in zip(*found, strict=True):
        torch.testing.assert_close(long, whole, atol=1e-5, rtol=1e-4)


def test_a_model_that_never_calls_the_interface_is_refused_not_empty():
    sizes = {"vocab_size": 97, "hidden_size": 15, "num_attention_heads": 3, "num_hidden_layers": 1}
    model = DebertaV2Model(DebertaV2Config(**sizes, intermediate_size=7)).eval()

    with (
        pytest.raises(ValueError, match="DebertaV2Model never called transformers' attention interface"),
        hf.observe(model, lambda call: None),
    ):
        model(input_ids=torch.ones(1, 5, dtype=torch.int64))


def test_a_model_in_train_mode_is_refused():
    with (
        pytest.raises(ValueError, match=r"model: is in train mode; call model.eval\(\) first"),
        hf.observe(build("bert").train(), lambda call: None),
    ):
        pass
