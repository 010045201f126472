from __future__ import annotations

import pytest

from octavo.core.kv.planning import (
    group_layers,
    max_model_len_that_fits,
    peak_blocks,
    plan_kv_cache,
    request_blocks,
    tokens_ahead,
)
from octavo.types.errors import ConfigError
from octavo.types.kv_spec import FullAttentionSpec, SlidingWindowSpec

FULL = FullAttentionSpec(block_size=16, num_kv_heads=8, head_size=128, dtype="bfloat16")
SLIDING = SlidingWindowSpec(
    block_size=16, num_kv_heads=8, head_size=128, dtype="bfloat16", window=1024
)
PAGE = 2 * 8 * 128 * 2 * 16


def layers(**counts):
    """full=2, sliding=4 -> {name: spec} with the kinds interleaved."""
    specs = {"full": FULL, "sliding": SLIDING}
    named = [(f"{kind}{i}", specs[kind]) for kind, n in counts.items() for i in range(n)]
    return dict(sorted(named, key=lambda item: (item[0][-1], item[0])))


def test_layers_of_one_kind_make_one_group():
    config = plan_kv_cache(layers(full=6), 100 * 6 * PAGE, max_model_len=500, max_tokens_ahead=64)
    assert len(config.groups) == 1
    assert len(config.groups[0].layer_names) == 6
    assert config.num_blocks == 100
    assert config.total_bytes == 100 * 6 * PAGE


# Layer counts of Gemma 3 27B, Gemma 3 1B, gpt-oss 20B, Gemma 2 2B, and lopsided ones.
@pytest.mark.parametrize(
    ("full", "sliding", "size", "groups"),
    [
        (10, 52, 10, 7),
        (4, 22, 4, 7),
        (12, 12, 12, 2),
        (13, 13, 13, 2),
        (31, 1, 31, 2),
        (1, 31, 5, 8),
    ],
)
def test_group_sizes(full, sliding, size, groups):
    result = group_layers(layers(full=full, sliding=sliding))
    assert len(result) == groups
    assert max(len(group.layer_names) for group in result) == size
    names = [name for group in result for name in group.layer_names]
    assert sorted(names) == sorted(layers(full=full, sliding=sliding))
    for group in result:
        assert len({name.rstrip("0123456789") for name in group.layer_names}) == 1


def test_smaller_pages_get_larger_blocks():
    small = FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=128, dtype="bfloat16")
    groups = group_layers({"a": FULL, "b": small})
    assert [group.spec.block_size for group in groups] == [16, 64]
    assert len({group.spec.page_bytes for group in groups}) == 1


def test_pages_that_do_not_divide_are_left_as_they_are():
    odd = FullAttentionSpec(block_size=16, num_kv_heads=8, head_size=96, dtype="bfloat16")
    config = plan_kv_cache(
        {"a": FULL, "b": odd}, 100 * PAGE, max_model_len=160, max_tokens_ahead=64
    )
    assert [group.spec.block_size for group in config.groups] == [16, 16]
    assert config.block_bytes == PAGE
    assert config.num_blocks == 100


def test_bytes_per_token_of_known_models():
    """2 x layers x kv heads x head size x bytes: SmolLM2-135M, Qwen3-0.6B, Llama 3.1 8B."""
    for count, heads, head, dtype, expected in (
        (30, 3, 64, "float32", 46_080),
        (28, 8, 128, "bfloat16", 114_688),
        (32, 8, 128, "bfloat16", 131_072),
    ):
        spec = FullAttentionSpec(16, heads, head, dtype)
        config = plan_kv_cache(
            {f"l{i}": spec for i in range(count)},
            1 << 30,
            max_model_len=1024,
            max_tokens_ahead=64,
        )
        assert config.block_bytes / 16 == expected


def test_the_override_decides_the_number_of_blocks():
    config = plan_kv_cache(
        layers(full=2), 1, max_model_len=64, max_tokens_ahead=64, num_blocks_override=7
    )
    assert config.num_blocks == 7


def test_what_does_not_fit_names_a_length_that_does():
    specs = layers(full=2)
    available = 11 * 2 * PAGE  # the null block and 160 tokens
    with pytest.raises(ConfigError, match=r"max_model_len=161 .* at most 160"):
        plan_kv_cache(specs, available, max_model_len=161, max_tokens_ahead=64)
    plan_kv_cache(specs, available, max_model_len=160, max_tokens_ahead=64)
    assert max_model_len_that_fits(specs, available, max_tokens_ahead=64) == 160
    assert max_model_len_that_fits(specs, available, max_tokens_ahead=64, limit=100) == 100


@pytest.mark.parametrize("available", [-5, 0, PAGE])
def test_nothing_fits(available):
    with pytest.raises(ConfigError, match="no max_model_len fits"):
        plan_kv_cache(layers(full=1), available, max_model_len=16, max_tokens_ahead=64)
    assert max_model_len_that_fits(layers(full=1), available, max_tokens_ahead=64) == 0


def test_no_layers_need_nothing_but_the_null_block():
    assert group_layers({}) == ()
    config = plan_kv_cache({}, 1 << 30, max_model_len=1 << 20, max_tokens_ahead=64)
    assert (config.num_blocks, config.total_bytes) == (1, 0)
    assert max_model_len_that_fits({}, 0, max_tokens_ahead=64, limit=512) == 512


def test_a_sliding_window_needs_few_blocks():
    assert peak_blocks(SLIDING, 100, 512) == 7
    assert peak_blocks(SLIDING, 1 << 20, 512) == 97
    hybrid = plan_kv_cache(
        layers(full=4, sliding=20), 1 << 31, max_model_len=1 << 14, max_tokens_ahead=512
    )
    full = plan_kv_cache(layers(full=24), 1 << 31, max_model_len=1 << 14, max_tokens_ahead=512)
    long_context = 1 << 14
    hybrid_bytes = request_blocks(hybrid, long_context, 512) * hybrid.block_bytes
    full_bytes = request_blocks(full, long_context, 512) * full.block_bytes
    assert hybrid_bytes < full_bytes / 3


def test_longest_length_of_a_hybrid_is_the_longest():
    specs = layers(full=4, sliding=20)
    available = 5000 * 4 * PAGE
    longest = max_model_len_that_fits(specs, available, max_tokens_ahead=512)
    plan_kv_cache(specs, available, max_model_len=longest, max_tokens_ahead=512)
    with pytest.raises(ConfigError):
        plan_kv_cache(specs, available, max_model_len=longest + 1, max_tokens_ahead=512)


def test_tokens_ahead():
    assert tokens_ahead(2048, 2, 0) == 2048
    assert tokens_ahead(2, 4, 0) == 5
    assert tokens_ahead(8, 4, 3) == 4 * 5 + 3
