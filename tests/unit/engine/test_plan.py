"""The memory plan against figures worked out by hand."""

from __future__ import annotations

import re

import pytest

from octavo.config.engine_options import EngineOptions
from octavo.config.resolve import ModelFacts, resolve
from octavo.core.kv.planning import tokens_ahead
from octavo.engine.plan import CPU_KV_LIMIT, make_plan
from octavo.types.errors import ConfigError
from octavo.types.platform_info import PlatformInfo

GIB = 1 << 30

QWEN3_8B = {
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}
LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "dtype": "bfloat16",
}
TINY = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
}
H200 = PlatformInfo("cuda", "NVIDIA H200", 140 * GIB, 139 * GIB, capability=(9, 0))
CPU = PlatformInfo("cpu", "a CPU", 32 * GIB, 24 * GIB)


def configure(hf_config, platform, usage="server", **options):
    facts = ModelFacts(hf_config=hf_config)
    return resolve(EngineOptions(**options), platform, usage, facts=facts)


def plan(hf_config, platform, headers=None, usage="server", **options):
    return make_plan(configure(hf_config, platform, usage, **options), headers)


def line(found, name):
    return next(entry.num_bytes for entry in found.lines if entry.name == name)


def test_qwen3_8b_by_hand():
    found = plan(QWEN3_8B, H200)
    # 8,190,735,360 parameters of 2 bytes: the 16.4 GB of the checkpoint.
    assert line(found, "weights") == 2 * 8_190_735_360
    assert line(found, "token embedding") == 2 * 151936 * 4096
    assert line(found, "attention layers") == 2 * 36 * 4096 * 128 * (32 + 8 + 8 + 32)
    assert line(found, "MLP layers") == 2 * 36 * 3 * 4096 * 12288
    assert line(found, "norms") == 2 * (36 * (2 * 4096 + 2 * 128) + 4096)
    assert found.bytes_per_token == 147456
    assert found.kv_cache_config.block_bytes == 16 * 147456
    assert found.blocks_per_request == 40960 // 16


def test_llama_3_1_8b_by_hand():
    found = plan(LLAMA_8B, H200)
    assert line(found, "weights") == 2 * 8_030_261_248
    assert found.bytes_per_token == 131072


def test_a_gpu_plan_fills_the_utilization():
    found = plan(QWEN3_8B, H200)
    assert found.limit_bytes == int(0.92 * 140 * GIB)
    assert 0 <= found.headroom_bytes < found.kv_cache_config.block_bytes
    parts = sum(entry.num_bytes for entry in found.lines if entry.of is None)
    assert found.used_bytes == parts + found.kv_cache_bytes
    assert found.max_concurrency == (found.num_blocks - 1) / 2560


def test_half_the_utilization_halves_what_is_left_beside_the_model():
    full, half = (plan(QWEN3_8B, H200, gpu_memory_utilization=u) for u in (0.9, 0.45))
    freed = (full.num_blocks - half.num_blocks) * full.kv_cache_config.block_bytes
    assert freed == pytest.approx(0.45 * 140 * GIB, rel=1e-3)


def test_memory_of_other_processes_is_respected():
    busy = PlatformInfo("cuda", "NVIDIA H200", 140 * GIB, 60 * GIB, capability=(9, 0))
    found = plan(QWEN3_8B, busy)
    assert found.limit_bytes == 60 * GIB
    assert "other processes" in found.table()
    # The machine may have changed since the configuration was resolved.
    assert make_plan(configure(QWEN3_8B, H200), platform=busy).limit_bytes == 60 * GIB


def test_the_cpu_rules_for_the_kv_cache():
    large = plan(QWEN3_8B, PlatformInfo("cpu", "a CPU", 128 * GIB, 100 * GIB), max_model_len=4096)
    assert CPU_KV_LIMIT - large.kv_cache_bytes < large.kv_cache_config.block_bytes
    little = plan(TINY | {"num_hidden_layers": 64}, PlatformInfo("cpu", "", GIB, GIB // 2))
    assert GIB // 8 - little.kv_cache_bytes < little.kv_cache_config.block_bytes
    # 2 x 128 requests of 256 tokens, and the null block.
    assert plan(TINY, CPU).num_blocks == 2 * 128 * 16 + 1
    asked = plan(TINY, CPU, kv_cache_memory_bytes="1M")
    assert asked.num_blocks == (1 << 20) // (16 * 2 * 2 * 2 * 16 * 4)
    assert plan(TINY, CPU, num_gpu_blocks_override=99).num_blocks == 99


def test_auto_fits_the_longest_request():
    small = PlatformInfo("cuda", "a GPU", 24 * GIB, 23 * GIB, capability=(8, 9))
    found = plan(QWEN3_8B, small, max_model_len="auto", gpu_memory_utilization=0.95)
    longest = found.config.model.max_model_len
    assert 1000 < longest < 40960
    assert longest == (found.num_blocks - 1) * 16
    assert found.config.notes[-1].startswith(f"max_model_len={longest}")
    fixed = {"gpu_memory_utilization": 0.95}
    assert plan(QWEN3_8B, small, max_model_len=longest, **fixed).max_concurrency >= 1.0
    assert plan(QWEN3_8B, H200, max_model_len="auto").config.model.max_model_len == 40960


FLAG = re.compile(r"use --([a-z-]+)(?: (\S+))?$")


@pytest.mark.parametrize(
    ("hf_config", "platform", "options", "flag"),
    [
        (QWEN3_8B, PlatformInfo("cuda", "", 24 * GIB, 24 * GIB, capability=(8, 9)),
         {}, "max-model-len"),
        (QWEN3_8B, H200, {"gpu_memory_utilization": 0.1}, "gpu-memory-utilization"),
        (QWEN3_8B, PlatformInfo("cuda", "", 20 * GIB, 20 * GIB, capability=(8, 9)),
         {"max_num_batched_tokens": 65536, "max_model_len": 4096}, "max-num-batched-tokens"),
        (TINY, CPU, {"kv_cache_memory_bytes": "64k"}, "max-model-len"),
        (TINY, CPU, {"kv_cache_memory_bytes": "16k"}, "kv-cache-memory-bytes"),
        (TINY, CPU, {"num_gpu_blocks_override": 2}, "num-gpu-blocks-override"),
        (TINY, CPU, {"num_gpu_blocks_override": 10**8}, "num-gpu-blocks-override"),
        (TINY, CPU, {"kv_cache_memory_bytes": "1T"}, "kv-cache-memory-bytes"),
        (QWEN3_8B, H200, {"num_gpu_blocks_override": 10**6}, "num-gpu-blocks-override"),
        (QWEN3_8B, PlatformInfo("cpu", "", 32 * GIB, 24 * GIB), {"max_model_len": 4096}, "dtype"),
    ],
)  # fmt: skip
def test_an_error_names_a_change_that_fits(hf_config, platform, options, flag):
    with pytest.raises(ConfigError) as caught:
        plan(hf_config, platform, **options)
    match = FLAG.search(str(caught.value))
    assert match is not None, caught.value
    assert match[1] == flag
    remedy = {match[1].replace("-", "_"): match[2] or True}
    assert plan(hf_config, platform, **(options | remedy)).max_concurrency >= 1.0


def test_a_model_that_can_not_fit_says_so():
    tiny_gpu = PlatformInfo("cuda", "", 8 * GIB, 8 * GIB, capability=(8, 9))
    with pytest.raises(ConfigError, match="a smaller model, or a device with more memory"):
        plan(QWEN3_8B, tiny_gpu)


def test_graphs_are_planned_only_where_they_exist():
    names = {entry.name for entry in plan(QWEN3_8B, H200).lines}
    assert {"CUDA graphs", "CUDA context"} <= names
    eager = {entry.name for entry in plan(QWEN3_8B, H200, enforce_eager=True).lines}
    assert "CUDA graphs" not in eager
    assert "CUDA context" not in {entry.name for entry in plan(TINY, CPU).lines}


def test_sliding_layers_take_less_at_full_length():
    sliding = QWEN3_8B | {
        "use_sliding_window": True,
        "sliding_window": 1024,
        "layer_types": ["sliding_attention", "full_attention"] * 18,
    }
    full, half = plan(QWEN3_8B, H200), plan(sliding, H200, max_num_batched_tokens=1024)
    assert half.bytes_per_token == full.bytes_per_token
    assert half.max_concurrency > 1.7 * full.max_concurrency


@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 8192])
@pytest.mark.parametrize("asynchronous", [True, False])
def test_the_plan_holds_as_many_tokens_ahead_as_the_scheduler(tokens, asynchronous):
    options = {"max_num_batched_tokens": tokens, "async_scheduling": asynchronous}
    scheduler = configure(TINY, CPU, **options).scheduler
    steps = scheduler.max_concurrent_steps
    assert scheduler.max_tokens_ahead == tokens_ahead(tokens, steps, num_speculative_tokens=0)


def test_table_and_dump_agree():
    found = plan(QWEN3_8B, H200)
    text, dump = found.table(), found.dump()
    for entry in found.lines:
        assert entry.name in text
    assert f"{found.num_blocks:,} blocks" in text
    assert dump["bytes"]["weights"] == line(found, "weights")
    assert dump["bytes"]["weights: MLP layers"] == line(found, "MLP layers")
    assert dump["num_blocks"] == found.num_blocks


def test_fewer_graphs_rather_than_no_start():
    share = 0.9
    config = configure(QWEN3_8B, H200, max_model_len=8192, gpu_memory_utilization=share)
    every = make_plan(config)
    needed = every.used_bytes - every.kv_cache_bytes
    needed += (every.blocks_per_request + 1) * every.kv_cache_config.block_bytes
    short = int((needed - (200 << 20)) / share)
    small = PlatformInfo("cuda", "NVIDIA H200", short, short, capability=(9, 0))
    found = make_plan(config, None, small)
    sizes = found.config.compilation.cudagraph_capture_sizes
    assert 0 < len(sizes) < len(config.compilation.cudagraph_capture_sizes)
    assert found.config.compilation.max_cudagraph_capture_size == max(sizes)
    assert any("no room for larger graphs" in note for note in found.config.notes)
    with pytest.raises(ConfigError, match="one request of max_model_len=8192"):
        make_plan(config, None, PlatformInfo("cuda", "", short // 2, short // 2, capability=(9, 0)))


def test_what_is_allocated_after_the_cache():
    found = plan(QWEN3_8B, H200)
    assert found.later_bytes == line(found, "CUDA graphs") + line(found, "sampling tables")
    assert plan(TINY, CPU).later_bytes == 0
