"""Facts read from config.json files of every age."""

from __future__ import annotations

import sys

import pytest

from octavo.config import architectures
from octavo.config.architectures import TRANSFORMERS_MODEL, model_arch
from octavo.types.errors import ConfigError
from octavo.utils.registry import Registry

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 256,
}


def config(architecture, **entries):
    return {"architectures": [architecture], **SMALL, **entries}


def test_llama_3_1_8b(llama_8b):
    arch = model_arch(llama_8b)
    assert arch.head_size == 128
    assert (arch.num_heads, arch.num_kv_heads) == (32, 8)
    assert arch.rope.theta == 500000.0
    assert arch.rope.scaling["rope_type"] == "llama3"
    assert arch.max_model_len == 131072  # llama3 scaling is in max_position_embeddings already
    assert arch.eos_token_ids == (128001, 128008, 128009)
    assert not arch.qk_norm
    assert not arch.qkv_bias


def test_qwen3_8b(qwen3_8b):
    arch = model_arch(qwen3_8b)
    assert arch.qk_norm
    assert not arch.qkv_bias
    assert arch.rope.scaling is None
    assert arch.layer_types == ("full_attention",) * 36
    assert arch.dtype == "bfloat16"


def test_entries_left_out_get_the_family_defaults():
    llama = model_arch(config("LlamaForCausalLM"))
    assert llama.num_kv_heads == 4
    assert llama.head_size == 16
    assert llama.max_position_embeddings == 2048
    assert llama.dtype == "float32"
    assert model_arch(config("Qwen3ForCausalLM")).head_size == 128


def test_biases_follow_the_family():
    qwen2 = model_arch(config("Qwen2ForCausalLM"))
    assert (qwen2.qkv_bias, qwen2.o_bias, qwen2.mlp_bias) == (True, False, False)
    llama = model_arch(config("LlamaForCausalLM", attention_bias=True, mlp_bias=True))
    assert (llama.qkv_bias, llama.o_bias, llama.mlp_bias) == (True, True, True)
    mistral = model_arch(config("MistralForCausalLM", attention_bias=True, sliding_window=None))
    assert (mistral.qkv_bias, mistral.o_bias) == (False, False)


def test_rope_of_transformers_5_equals_that_of_4():
    scaling = {"factor": 4.0, "original_max_position_embeddings": 2048}
    newer = config(
        "LlamaForCausalLM",
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "yarn", "rope_theta": 5e5, **scaling},
        dtype="bfloat16",
    )
    older = config(
        "LlamaForCausalLM",
        max_position_embeddings=4096,
        rope_theta=5e5,
        rope_scaling={"type": "yarn", **scaling},
        torch_dtype="bfloat16",
    )
    assert model_arch(newer) == model_arch(older)
    assert model_arch(newer).max_model_len == 8192


def test_plain_rope_has_no_scaling():
    arch = model_arch(
        config("LlamaForCausalLM", rope_parameters={"rope_type": "default", "rope_theta": 7.0})
    )
    assert (arch.rope.theta, arch.rope.scaling) == (7.0, None)


@pytest.mark.parametrize("kind", ["linear", "dynamic"])
def test_linear_and_dynamic_rope_lengthen_the_limit(kind):
    arch = model_arch(config("LlamaForCausalLM", rope_scaling={"type": kind, "factor": 2.5}))
    assert arch.max_model_len == 5120


def test_windows():
    mistral = model_arch(config("MistralForCausalLM", sliding_window=32))
    assert mistral.sliding_window == 32
    assert set(mistral.layer_types) == {"sliding_attention"}
    whole = model_arch(config("MistralForCausalLM", sliding_window=None))
    assert whole.sliding_window is None
    qwen = config("Qwen2ForCausalLM", sliding_window=32, max_window_layers=3)
    assert model_arch(qwen).sliding_window is None  # use_sliding_window is what turns it on
    used = model_arch(qwen | {"use_sliding_window": True})
    assert used.layer_types == ("full_attention",) * 3 + ("sliding_attention",)
    listed = ["sliding_attention", "full_attention"] * 2
    explicit = model_arch(qwen | {"use_sliding_window": True, "layer_types": listed})
    assert explicit.layer_types == tuple(listed)


def test_gemma_3_of_every_age():
    """Two wavelengths, of which older files name one apart; a scaling is that of full layers."""
    scaling = {"rope_type": "linear", "factor": 8.0}
    older = config(
        "Gemma3ForCausalLM",
        rope_theta=1e6,
        rope_local_base_freq=1e4,
        rope_scaling=scaling,
        sliding_window_pattern=2,
        sliding_window=64,
        query_pre_attn_scalar=100,
    )
    newer = config(
        "Gemma3ForCausalLM",
        rope_parameters={
            "full_attention": {"rope_theta": 1e6, **scaling},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
        layer_types=["sliding_attention", "full_attention"] * 2,
        sliding_window=64,
        query_pre_attn_scalar=100,
    )
    arch = model_arch(older)
    assert arch == model_arch(newer)
    assert (arch.rope.theta, arch.rope.scaling) == (1e6, scaling)
    assert (arch.sliding_rope.theta, arch.sliding_rope.scaling) == (1e4, None)
    assert arch.attention_scale == 0.1
    assert [arch.window(i) for i in range(4)] == [64, None, 64, None]
    assert arch.max_model_len == 131072  # the scaling is counted in max_position_embeddings
    assert arch.tie_word_embeddings


def test_gemma_2_has_caps_and_alternates():
    arch = model_arch(config("Gemma2ForCausalLM"))
    assert (arch.attention_soft_cap, arch.logits_soft_cap) == (50.0, 30.0)
    assert arch.layer_types == ("sliding_attention", "full_attention") * 2
    uncapped = model_arch(config("Gemma2ForCausalLM", attn_logit_softcapping=None))
    assert uncapped.attention_soft_cap is None


def test_phi_3_names_the_trained_length_outside_the_scaling():
    factors = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    arch = model_arch(
        config(
            "Phi3ForCausalLM",
            rope_scaling={"type": "su", **factors},
            original_max_position_embeddings=4096,
            max_position_embeddings=131072,
        )
    )
    assert arch.rope.scaling["rope_type"] == "longrope"
    assert arch.rope.scaling["original_max_position_embeddings"] == 4096
    assert arch.max_model_len == 131072
    assert arch.sliding_window is None


def test_which_layers_rotate():
    smollm3 = model_arch(config("SmolLM3ForCausalLM"))
    assert smollm3.rotates == (True, True, True, False)
    listed = model_arch(config("SmolLM3ForCausalLM", no_rope_layers=[0, 1, 0, 1]))
    assert listed.rotates == (False, True, False, True)
    assert model_arch(config("Cohere2ForCausalLM")).rotates == (True, True, True, False)
    exaone = config("Exaone4ForCausalLM", sliding_window_pattern="LG", sliding_window=8)
    assert model_arch(exaone).rotates == (True, False, True, False)
    assert all(model_arch(exaone | {"sliding_window": None}).rotates)
    assert not any(model_arch(config("GPT2LMHeadModel", n_embd=64, n_layer=2, n_head=4)).rotates)


def test_other_names_and_what_is_left_out():
    gpt2 = model_arch(
        {
            "architectures": ["GPT2LMHeadModel"],
            "n_embd": 768,
            "n_layer": 12,
            "n_head": 12,
            "n_positions": 1024,
            "vocab_size": 50257,
        }
    )
    assert (gpt2.hidden_size, gpt2.intermediate_size, gpt2.num_layers) == (768, 3072, 12)
    assert (gpt2.hidden_act, gpt2.gated_mlp, gpt2.qkv_bias) == ("gelu_new", False, True)
    assert gpt2.tie_word_embeddings
    neox = model_arch(config("GPTNeoXForCausalLM", rotary_pct=0.5, rotary_emb_base=500))
    assert (neox.rope.partial, neox.rope.theta) == (0.5, 500.0)
    assert model_arch(config("GPTNeoXForCausalLM")).rope.partial == 0.25
    bloom = model_arch(config("BloomForCausalLM", n_layer=2, n_head=4, intermediate_size=None))
    assert bloom.alibi
    assert bloom.intermediate_size == 256


def test_qwen_windows_may_begin_with_the_first_layer():
    entries = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}
    arch = model_arch(config("Qwen2ForCausalLM", **entries))
    assert set(arch.layer_types) == {"sliding_attention"}


def test_variants_that_octavo_has_no_class_for():
    with pytest.raises(ConfigError, match="--model-impl transformers"):
        model_arch(config("OPTForCausalLM", ffn_dim=128, do_layer_norm_before=False))


def test_the_transformers_backend_where_there_is_no_class():
    olmo = config("OlmoForCausalLM", model_type="olmo", num_key_value_heads=2)
    arch = model_arch(olmo)
    assert arch.architecture == TRANSFORMERS_MODEL
    assert (arch.num_kv_heads, arch.head_size, arch.num_layers) == (2, 16, 4)
    with pytest.raises(ConfigError, match="OlmoForCausalLM"):
        model_arch(olmo, "octavo")
    llama = config("LlamaForCausalLM", model_type="llama")
    assert model_arch(llama, "transformers").architecture == TRANSFORMERS_MODEL
    assert model_arch(llama, "vllm").architecture == "LlamaForCausalLM"
    with pytest.raises(ConfigError, match="text-only causal"):
        model_arch({"architectures": ["T5ForConditionalGeneration"], "model_type": "t5"})


@pytest.mark.parametrize(
    ("entries", "part"),
    [
        ({"hidden_size": None}, "lacks 'hidden_size'"),
        ({"hidden_size": 0}, "hidden_size=0"),
        ({"hidden_size": "64"}, "hidden_size='64'"),
        ({"num_key_value_heads": 3}, "num_key_value_heads=3"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu'"),
        ({"rms_norm_eps": -1}, "rms_norm_eps=-1"),
        ({"attention_bias": "no"}, "attention_bias='no'"),
        ({"rope_scaling": {"rope_type": "long"}}, "rope_type='long'"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "needs 'short_factor', a list"),
        ({"partial_rotary_factor": 0}, "partial_rotary_factor=0"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 2}}, "'low_freq_factor'"),
        ({"rope_parameters": {"full_attention": {}}}, "rope_parameters"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": ["mamba"] * 4}, "'mamba'"),
        ({"layer_types": ["sliding_attention"] * 4}, "no window"),
        ({"torch_dtype": "int4"}, "dtype='int4'"),
        ({"eos_token_id": "x"}, "eos_token_id='x'"),
        ({"architectures": []}, "no architecture"),
        ({"architectures": ["LlamaForCausallM"]}, "did you mean LlamaForCausalLM?"),
    ],
)
def test_wrong_entries_are_named(entries, part):
    with pytest.raises(ConfigError) as caught:
        model_arch(config("LlamaForCausalLM", **entries))
    assert part in str(caught.value)


def test_without_transformers_the_error_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "octavo.models.transformers_arch", raising=False)
    monkeypatch.setattr(
        architectures,
        "_FALLBACK",
        Registry("reader", {"transformers": "octavo.models.transformers_arch:transformers_arch"}),
    )
    with pytest.raises(ConfigError, match="pip install transformers"):
        model_arch(config("OlmoForCausalLM", model_type="olmo"))
