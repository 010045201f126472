"""What layers keep, by architecture."""

from __future__ import annotations

from octavo.config.engine_options import EngineOptions
from octavo.config.kv_specs import kv_cache_specs
from octavo.config.resolve import ModelFacts, resolve
from octavo.types.kv_spec import FullAttentionSpec, SlidingWindowSpec


def specs(platform, hf_config, **options):
    config = resolve(EngineOptions(**options), platform, facts=ModelFacts(hf_config=hf_config))
    return kv_cache_specs(config)


def test_full_attention(h200, qwen3_8b):
    found = specs(h200, qwen3_8b)
    assert list(found)[:2] == ["model.layers.0.self_attn.attn", "model.layers.1.self_attn.attn"]
    assert len(found) == 36
    spec = FullAttentionSpec(block_size=16, num_kv_heads=8, head_size=128, dtype="bfloat16")
    assert set(found.values()) == {spec}
    # 2 (keys, values) x 8 heads x 128 x 2 bytes x 36 layers, per token.
    assert sum(s.page_bytes for s in found.values()) // 16 == 147456


def test_sliding_layers(cpu, qwen3_8b):
    hf_config = qwen3_8b | {
        "use_sliding_window": True,
        "sliding_window": 4096,
        "max_window_layers": 30,
    }
    found = list(specs(cpu, hf_config, block_size=32).values())
    assert all(isinstance(s, FullAttentionSpec) for s in found[:30])
    window = SlidingWindowSpec(
        block_size=32, num_kv_heads=8, head_size=128, dtype="float32", window=4096
    )
    assert found[30:] == [window] * 6
