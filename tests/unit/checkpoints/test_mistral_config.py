"""params.json as a config.json."""

from pathlib import Path

import pytest

from octavo.checkpoints.mistral_config import hf_config
from octavo.checkpoints.mistral_files import hf_tensor_name
from octavo.config.architectures import model_arch
from octavo.types.errors import CheckpointError

# Mistral-Small-24B-Instruct-2501
PARAMS = {
    "dim": 5120,
    "n_layers": 40,
    "head_dim": 128,
    "hidden_dim": 32768,
    "n_heads": 32,
    "n_kv_heads": 8,
    "rope_theta": 100000000.0,
    "norm_eps": 1e-05,
    "vocab_size": 131072,
    "max_seq_len": 32768,
}


def arch(**changes):
    return model_arch(hf_config(Path("params.json"), PARAMS | changes))


def test_sizes():
    found = arch()
    assert found.architecture == "MistralForCausalLM"
    assert (found.hidden_size, found.intermediate_size, found.num_layers) == (5120, 32768, 40)
    assert (found.num_heads, found.num_kv_heads, found.head_size) == (32, 8, 128)
    assert (found.vocab_size, found.max_position_embeddings) == (131072, 32768)
    assert (found.rope.theta, found.norm_eps) == (1e8, 1e-5)
    assert (found.sliding_window, found.tie_word_embeddings) == (None, False)
    assert (found.bos_token_id, found.eos_token_ids) == (1, (2,))
    assert found.dtype == "bfloat16"
    assert arch(max_position_embeddings=4096).max_position_embeddings == 4096
    assert arch(tied_embeddings=True).tie_word_embeddings
    plain = {name: value for name, value in PARAMS.items() if name not in ("head_dim",)}
    assert hf_config(Path("p"), plain)["head_dim"] == 160
    without_heads = {name: value for name, value in PARAMS.items() if name != "n_kv_heads"}
    assert hf_config(Path("p"), without_heads)["num_key_value_heads"] == 32


def test_windows():
    assert arch(sliding_window=4096).window(0) == 4096
    found = arch(sliding_window=[None, 1024, 1024, 1024])
    assert [found.window(layer) for layer in range(5)] == [None, 1024, 1024, 1024, None]
    with pytest.raises(CheckpointError, match="sliding_window"):
        arch(sliding_window=[1, 2])


def test_yarn():
    yarn = {"factor": 16.0, "original_max_position_embeddings": 8192, "beta": 32, "alpha": 1}
    scaling = arch(yarn=yarn).rope.scaling
    assert scaling["rope_type"] == "yarn"
    assert (scaling["factor"], scaling["original_max_position_embeddings"]) == (16.0, 8192)
    assert (scaling["beta_fast"], scaling["beta_slow"]) == (32.0, 1.0)
    assert "attention_factor" not in scaling
    assert arch(yarn=yarn | {"apply_scale": False}).rope.scaling["attention_factor"] == 1.0
    with pytest.raises(CheckpointError, match="lacks 'beta'"):
        arch(yarn={"factor": 2.0, "original_max_position_embeddings": 8192})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"moe": {"num_experts": 8}}, r"'moe' \(experts\).*--config-format hf"),
        ({"vision_encoder": {"dim": 1}}, "images"),
        ({"quantization": {"qformat_weight": "fp8_e4m3"}}, "quantized weights"),
        ({"dim": None}, "dim=None; expected a whole number > 0"),
        ({"n_heads": 0}, "n_heads=0"),
        ({"vocab_size": "131072"}, "vocab_size='131072'"),
    ],
)
def test_refusals(changes, message):
    with pytest.raises(CheckpointError, match=message):
        hf_config(Path("params.json"), PARAMS | changes)


def test_names():
    assert hf_tensor_name("tok_embeddings.weight") == "model.embed_tokens.weight"
    assert hf_tensor_name("layers.12.attention.wq.weight") == (
        "model.layers.12.self_attn.q_proj.weight"
    )
    for strange in ("layers.x.attention.wq.weight", "layers.1.other.weight", "weight", ""):
        assert hf_tensor_name(strange) == strange
