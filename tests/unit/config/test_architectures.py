"""Facts read from config.json files of every age."""

from __future__ import annotations

import pytest

from octavo.config.architectures import model_arch
from octavo.types.errors import ConfigError

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
    assert arch.rope_theta == 500000.0
    assert arch.rope_scaling["rope_type"] == "llama3"
    assert arch.max_model_len == 131072  # llama3 scaling is in max_position_embeddings already
    assert arch.eos_token_ids == (128001, 128008, 128009)
    assert not arch.qk_norm
    assert not arch.qkv_bias


def test_qwen3_8b(qwen3_8b):
    arch = model_arch(qwen3_8b)
    assert arch.qk_norm
    assert not arch.qkv_bias
    assert arch.rope_scaling is None
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
    assert (arch.rope_theta, arch.rope_scaling) == (7.0, None)


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
        ({"rope_scaling": {"rope_type": "longrope"}}, "rope_type='longrope'"),
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
