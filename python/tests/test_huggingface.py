"""Tiny models of transformers, randomly initialised: the logits with and without Saccade agree."""

import pytest
import torch

import saccade

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

TEXT = {"vocab_size": 99, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def gpt2(implementation):
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, **TEXT)
    config._attn_implementation = implementation
    return transformers.GPT2LMHeadModel(config)


def llama(implementation):
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, **TEXT
    )
    config._attn_implementation = implementation
    return transformers.LlamaForCausalLM(config)


def vit(implementation):
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8
    )
    config._attn_implementation = implementation
    return transformers.ViTForImageClassification(config)


def text(device):
    ids = torch.randint(3, 99, (2, 17), device=device)
    mask = torch.ones_like(ids)
    mask[1, :5] = 0  # padded on the left
    return {"input_ids": ids, "attention_mask": mask}


def image(device):
    return {"pixel_values": torch.randn(2, 3, 32, 32, device=device)}


MODELS = {"gpt2": (gpt2, text), "llama": (llama, text), "vit": (vit, image)}


def model_of(name, implementation, device):
    torch.manual_seed(0)
    return MODELS[name][0](implementation).eval().to(device)


@pytest.fixture
def calls(monkeypatch):
    from saccade import _torch

    seen = []
    forward = _torch._sdpa_forward
    spy = lambda *args: (seen.append(args), forward(*args))[1]  # noqa: E731
    monkeypatch.setattr(_torch, "_sdpa_forward", spy)
    monkeypatch.setattr(_torch, "_sdpa_plain", lambda q, k, v, causal: spy(q, k, v, None, causal))
    return seen


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_sdpa_models_while_enabled(device, name, calls, no_fallback):
    model, inputs = model_of(name, "sdpa", device), MODELS[name][1](device)
    expected = model(**inputs).logits
    assert not calls
    with saccade.enabled():
        result = model(**inputs).logits
    assert calls, "the model did not use SDPA"
    torch.testing.assert_close(result, expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_as_an_implementation_of_its_own(device, name, calls, no_fallback):
    saccade.register_huggingface()
    inputs = MODELS[name][1](device)
    expected = model_of(name, "sdpa", device)(**inputs).logits
    result = model_of(name, "saccade", device)(**inputs).logits
    assert calls
    torch.testing.assert_close(result, expected, atol=2e-5, rtol=2e-5)


def gemma2(implementation):
    config = transformers.Gemma2Config(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, sliding_window=6, attn_logit_softcapping=0.5, query_pre_attn_scalar=2, **TEXT,
    )  # fmt: skip
    config._attn_implementation = implementation
    return transformers.Gemma2ForCausalLM(config)


def gpt_oss(implementation):
    config = transformers.GptOssConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, sliding_window=6, num_local_experts=2, num_experts_per_tok=1, **TEXT,
    )  # fmt: skip
    config._attn_implementation = implementation
    return transformers.GptOssForCausalLM(config)


def t5(implementation):
    config = transformers.T5Config(
        d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=99, decoder_start_token_id=0
    )
    config._attn_implementation = implementation
    return transformers.T5ForConditionalGeneration(config)


@pytest.mark.parametrize("build", [gemma2, gpt_oss, t5])
@torch.no_grad()
def test_what_sdpa_does_not_have(device, build, monkeypatch, no_fallback):
    """Softcap, sinks and position biases: against the model's own plain attention."""
    from saccade import huggingface

    saccade.register_huggingface()
    seen = []
    monkeypatch.setattr(
        huggingface, "attention", lambda *args, **named: (seen.append(named), saccade.attention(*args, **named))[1]
    )
    results = []
    for implementation in ("eager", "saccade"):
        torch.manual_seed(0)
        try:
            model = build(implementation).eval().to(device)
        except (AttributeError, ValueError) as error:
            pytest.skip(f"this transformers does not have it: {error}")
        for name, parameter in model.named_parameters():  # what is zero or small by default must matter here
            if "sinks" in name or "relative_attention_bias" in name:
                parameter.normal_()
            elif "q_proj" in name or "k_proj" in name:
                parameter.mul_(20)
        torch.manual_seed(1)
        inputs = text(device)
        if build is t5:
            inputs["decoder_input_ids"] = inputs["input_ids"][:, :6]
        logits = model(**inputs).logits
        results.append(logits if build is t5 else logits[inputs["attention_mask"].bool()])
    assert seen, "the feature was not asked for"
    torch.testing.assert_close(results[1], results[0], atol=5e-5, rtol=5e-4)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@torch.no_grad()
def test_generation(device, name, no_fallback):
    model, inputs = model_of(name, "sdpa", device), text(device)
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(**inputs, **options)
    with saccade.enabled():
        assert torch.equal(model.generate(**inputs, **options), expected)


def test_training_is_pytorchs(device):
    model, inputs = model_of("llama", "sdpa", device), text(device)
    model.train()
    model(**inputs, labels=inputs["input_ids"]).loss.backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with saccade.enabled(), pytest.warns(saccade.FallbackWarning, match="gradients"):
        model(**inputs, labels=inputs["input_ids"]).loss.backward()
    for p, right in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, right)
