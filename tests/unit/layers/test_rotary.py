import math

import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from octavo.kernels.reference.elementwise import qk_norm_rope_cache
from octavo.layers.rotary import (
    NoRotary,
    RopeSettings,
    RotaryEmbedding,
    cos_sin_table,
    inverse_frequencies,
)
from octavo.types.errors import ConfigError

DIM = 16
MAX_POSITIONS = 256
FACTORS = [1.0 + 0.1 * i for i in range(DIM // 2)]

SCALINGS = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn with its own numbers": {
        "rope_type": "yarn",
        "factor": 16.0,
        "original_max_position_embeddings": 128,
        "beta_fast": 16,
        "beta_slow": 2,
        "mscale": 1.3,
        "mscale_all_dim": 0.7,
        "truncate": False,
    },
    "yarn with a given magnitude": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "attention_factor": 0.9,
    },
    "longrope": {
        "rope_type": "longrope",
        "short_factor": FACTORS,
        "long_factor": [2 * f for f in FACTORS],
        "original_max_position_embeddings": 64,
        "factor": 4.0,
    },
}


def settings(scaling, max_model_len=MAX_POSITIONS, theta=5000.0):
    return RopeSettings(
        rotary_dim=DIM,
        theta=theta,
        max_position_embeddings=MAX_POSITIONS,
        max_model_len=max_model_len,
        scaling=scaling,
    )


@pytest.mark.parametrize("max_model_len", [40, 256, 700])
@pytest.mark.parametrize("name", SCALINGS)
def test_equals_transformers(name, max_model_len):
    scaling = SCALINGS[name]
    config = transformers.LlamaConfig(
        hidden_size=4 * DIM,
        num_attention_heads=4,
        max_position_embeddings=MAX_POSITIONS,
        rope_parameters={"rope_theta": 5000.0, **scaling},
    )
    inverse, magnitude = inverse_frequencies(settings(scaling, max_model_len))
    reference = ROPE_INIT_FUNCTIONS[scaling["rope_type"]]
    expected, expected_magnitude = reference(config, seq_len=max_model_len)
    torch.testing.assert_close(inverse, expected, atol=0, rtol=2e-6)
    assert magnitude == pytest.approx(expected_magnitude)


def test_default_table():
    table = cos_sin_table(settings(None, max_model_len=50))
    assert table.shape == (50, DIM)
    assert table.dtype == torch.float32
    for position in (0, 1, 49):
        for pair in range(DIM // 2):
            angle = position / 5000.0 ** (2 * pair / DIM)
            assert table[position, pair].item() == pytest.approx(math.cos(angle), abs=1e-5)
            sine = table[position, DIM // 2 + pair].item()
            assert sine == pytest.approx(math.sin(angle), abs=1e-5)


def test_magnitude_scales_the_table():
    scaling = SCALINGS["yarn with a given magnitude"]
    table = cos_sin_table(settings(scaling, max_model_len=3))
    assert table[0, 0].item() == pytest.approx(0.9)


def test_dynamic_changes_nothing_within_the_trained_length():
    plain, _ = inverse_frequencies(settings(None))
    same, _ = inverse_frequencies(settings(SCALINGS["dynamic"], max_model_len=MAX_POSITIONS))
    torch.testing.assert_close(plain, same)


def test_unknown_variant_lists_the_known():
    with pytest.raises(ConfigError, match=r"'spiral' .* there are: default, linear.*longrope"):
        inverse_frequencies(settings({"rope_type": "spiral"}))


def test_module_holds_the_table_outside_the_checkpoint():
    module = RotaryEmbedding(settings(None, max_model_len=8), torch.device("cpu"))
    assert module.dim == DIM
    assert module.cos_sin.shape == (8, DIM)
    assert not module.state_dict()


def test_no_rotary_leaves_every_head_as_it_is():
    rotary = NoRotary(9, torch.device("cpu"))
    assert rotary.cos_sin.shape == (9, 2)
    heads = torch.randn(4, 3, 16)
    kv = torch.zeros(2, 2, 1, 4, 16)
    q = qk_norm_rope_cache(
        heads.flatten(1).clone(),
        None,
        None,
        0.0,
        rotary.cos_sin,
        torch.tensor([0, 3, 5, 8]),
        torch.tensor([4, 5, 6, 7]),
        kv,
        rotary.dim,
        rotary.is_neox,
    )
    assert torch.equal(q, heads[:, :1])
    assert torch.equal(kv[1, 0, 0], heads[:, 1])
