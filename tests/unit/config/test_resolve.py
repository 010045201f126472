"""What is chosen for the user, by device and by use, and what is refused."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from octavo.config.defaults import graph_sizes_up_to
from octavo.config.engine_options import EngineOptions
from octavo.config.octavo_config import default_sampling_params
from octavo.config.resolve import ModelFacts, resolve
from octavo.types.errors import ConfigError


def make(platform, hf_config, usage="llm", generation=None, kind="safetensors", **options):
    facts = ModelFacts(hf_config=hf_config, generation_config=generation or {}, kind=kind)
    return resolve(EngineOptions(**options), platform, usage, facts=facts)


@pytest.mark.parametrize(
    ("device", "usage", "tokens", "seqs"),
    [
        ("h200", "server", 8192, 1024),
        ("h200", "llm", 16384, 1024),
        ("a100", "server", 2048, 256),
        ("a100", "llm", 8192, 256),
        ("t4", "server", 2048, 256),
        ("cpu", "server", 2048, 128),
        ("cpu", "llm", 4096, 256),
    ],
)
def test_budgets_by_device_and_use(device, usage, tokens, seqs, request, qwen3_8b):
    config = make(request.getfixturevalue(device), qwen3_8b, usage)
    assert config.scheduler.max_num_batched_tokens == tokens
    assert config.scheduler.max_num_seqs == seqs


@pytest.mark.parametrize(
    ("device", "asked", "of_checkpoint", "dtype"),
    [
        ("cpu", "auto", "bfloat16", "float32"),
        ("cpu", "auto", "float32", "float32"),
        ("cpu", "bfloat16", "float32", "bfloat16"),
        ("h200", "auto", "bfloat16", "bfloat16"),
        ("h200", "auto", "float16", "float16"),
        ("h200", "auto", "float32", "bfloat16"),
        ("h200", "float32", "bfloat16", "float32"),
        ("h200", "half", "bfloat16", "float16"),
        ("t4", "auto", "bfloat16", "float16"),
        ("t4", "auto", "float32", "float16"),
    ],
)
def test_dtypes(device, asked, of_checkpoint, dtype, request, qwen3_8b):
    hf_config = qwen3_8b | {"torch_dtype": of_checkpoint}
    config = make(request.getfixturevalue(device), hf_config, dtype=asked)
    assert config.model.dtype == dtype
    assert config.cache.kv_cache_dtype == dtype
    changed = asked == "auto" and dtype != of_checkpoint
    assert any(f"dtype={dtype}" in note for note in config.notes) == (
        changed or (device == "cpu" and asked == "bfloat16")
    )


def test_a_gpu_without_bfloat16_refuses_it(t4, qwen3_8b):
    with pytest.raises(ConfigError, match=r"Tesla T4 .*7\.5.*--dtype float16"):
        make(t4, qwen3_8b, dtype="bfloat16")


def test_the_length_limit(cpu, qwen3_8b):
    assert make(cpu, qwen3_8b).model.max_model_len == 40960
    assert make(cpu, qwen3_8b, max_model_len="4k").model.max_model_len == 4000
    fitted = make(cpu, qwen3_8b, max_model_len="auto")
    assert fitted.model.max_model_len == 40960
    assert fitted.model.fit_max_model_len
    assert EngineOptions(max_model_len=-1).max_model_len == "auto"
    with pytest.raises(ConfigError, match=r"max_model_len=50000 is above .* limit of 40960"):
        make(cpu, qwen3_8b, max_model_len=50000)


def test_overrides_lengthen_the_model(cpu, qwen3_8b):
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    config = make(cpu, qwen3_8b, hf_overrides={"rope_scaling": yarn}, max_model_len=131072)
    assert config.model.arch.rope.scaling == yarn
    assert qwen3_8b["rope_scaling"] is None


def test_whole_prompts_need_a_step_that_holds_them(cpu, qwen3_8b):
    config = make(cpu, qwen3_8b, enable_chunked_prefill=False, max_model_len=10000)
    assert config.scheduler.max_num_batched_tokens == 10000
    assert any("max_num_batched_tokens=10000" in note for note in config.notes)
    with pytest.raises(ConfigError, match="max_num_batched_tokens=512 is below max_model_len=1000"):
        make(
            cpu,
            qwen3_8b,
            enable_chunked_prefill=False,
            max_model_len=1000,
            max_num_batched_tokens=512,
        )


def test_requests_need_a_token_each(cpu, qwen3_8b):
    config = make(cpu, qwen3_8b, max_num_batched_tokens=64)
    assert config.scheduler.max_num_seqs == 64
    assert any("max_num_seqs=64" in note for note in config.notes)
    with pytest.raises(ConfigError, match="max_num_seqs=65 is above max_num_batched_tokens=64"):
        make(cpu, qwen3_8b, max_num_batched_tokens=64, max_num_seqs=65)


def test_slots_cover_the_steps_in_flight(cpu, qwen3_8b):
    two = make(cpu, qwen3_8b, max_num_seqs=8).scheduler
    assert (two.max_concurrent_steps, two.num_slots) == (2, 16)
    one = make(cpu, qwen3_8b, max_num_seqs=8, async_scheduling=False).scheduler
    assert (one.max_concurrent_steps, one.num_slots) == (1, 8)


def test_a_target_for_the_time_between_tokens(cpu, h200, qwen3_8b):
    assert make(h200, qwen3_8b, usage="server").scheduler.itl_target_ms == 50.0
    assert make(h200, qwen3_8b).scheduler.itl_target_ms == 0.0
    assert make(cpu, qwen3_8b, usage="server").scheduler.itl_target_ms == 0.0
    assert make(cpu, qwen3_8b, itl_target_ms=30.0).scheduler.itl_target_ms == 30.0
    off = make(h200, qwen3_8b, usage="server", itl_target_ms=0.0)
    assert off.scheduler.itl_target_ms == 0.0


def test_whole_prompts_can_not_be_cut_to_a_target(h200, qwen3_8b):
    whole = {"enable_chunked_prefill": False, "usage": "server"}
    assert make(h200, qwen3_8b, **whole).scheduler.itl_target_ms == 0.0
    with pytest.raises(ConfigError, match="itl_target_ms=50 cuts prompts into parts"):
        make(h200, qwen3_8b, **whole, itl_target_ms=50.0)


def test_common_prefixes_are_read_together_unless_switched_off(h200, qwen3_8b):
    assert make(h200, qwen3_8b).shares_prefixes
    for off in (
        {"disable_cascade_attn": True},
        {"enable_prefix_caching": False},
        {"batch_invariant": True},
    ):
        assert not make(h200, qwen3_8b, **off).shares_prefixes


def test_graph_sizes(cpu, h200, qwen3_8b):
    assert make(cpu, qwen3_8b).compilation.cudagraph_capture_sizes == ()
    assert make(h200, qwen3_8b, enforce_eager=True).compilation.max_cudagraph_capture_size == 0
    default = make(h200, qwen3_8b).compilation
    assert default.max_cudagraph_capture_size == 512
    assert default.cudagraph_capture_sizes[:5] == (1, 2, 4, 8, 16)
    assert len(default.cudagraph_capture_sizes) <= 25
    small = make(h200, qwen3_8b, max_num_seqs=4).compilation
    assert small.cudagraph_capture_sizes == (1, 2, 4)
    given = make(h200, qwen3_8b, cudagraph_capture_sizes=[4, 1, 4]).compilation
    assert given.cudagraph_capture_sizes == (1, 4)
    assert (
        make(h200, qwen3_8b, cudagraph_capture_sizes=[]).compilation.max_cudagraph_capture_size == 0
    )
    with pytest.raises(ConfigError, match=r"has 512, above max_cudagraph_capture_size=256"):
        make(h200, qwen3_8b, cudagraph_capture_sizes=[512], max_cudagraph_capture_size=256)


@pytest.mark.parametrize("largest", [1, 2, 3, 7, 8, 9, 100, 512, 1024, 1000])
def test_graph_sizes_end_at_the_largest_and_waste_little(largest):
    sizes = graph_sizes_up_to(largest)
    assert sizes == tuple(sorted(set(sizes)))
    assert sizes[-1] == largest
    for below, above in itertools.pairwise(sizes):
        assert above - below <= max(8, below // 4)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"block_size": 24}, "block_size=24 is not a power of two"),
        ({"logits_processors": ["module"]}, "expected module:Class"),
        ({"load_format": "gguf"}, "--load-format auto"),
        ({"override_generation_config": {"temperatur": 1}}, "did you mean temperature?"),
        ({"override_generation_config": {"temperature": 9}}, "temperature=9"),
        ({"distributed_executor_backend": "mp"}, "uni"),
    ],
)
def test_wrong_values_name_their_remedy(options, part, cpu, qwen3_8b):
    with pytest.raises(ConfigError) as caught:
        make(cpu, qwen3_8b, **options)
    assert part in str(caught.value)


def test_small_blocks_are_for_cpus(cpu, h200, qwen3_8b):
    assert make(cpu, qwen3_8b, block_size=4).cache.block_size == 4
    with pytest.raises(ConfigError, match="--block-size 16"):
        make(h200, qwen3_8b, block_size=4)


def test_load_format_follows_the_files(cpu, qwen3_8b):
    assert make(cpu, qwen3_8b).load.load_format == "safetensors"
    assert make(cpu, qwen3_8b, kind="gguf").load.load_format == "gguf"
    assert make(cpu, qwen3_8b, load_format="dummy").load.load_format == "dummy"


def test_sampling_defaults_and_end_tokens(cpu, qwen3_8b):
    generation = {
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 7.0,
        "min_p": None,
        "do_sample": True,
        "max_new_tokens": 99,
        "eos_token_id": [151645, 151643],
    }
    config = make(cpu, qwen3_8b, generation=generation)
    assert default_sampling_params(config) == {"temperature": 0.6, "top_k": 20, "max_tokens": 99}
    assert config.model.eos_token_ids == (151645, 151643)
    assert any("top_p" in note and "ignored" in note for note in config.notes)

    neutral = make(cpu, qwen3_8b, generation=generation, generation_config="vllm")
    assert default_sampling_params(neutral) == {}
    assert neutral.model.eos_token_ids == (151645, 151643)

    mixed = make(
        cpu, qwen3_8b, generation=generation, override_generation_config={"temperature": 0.1}
    )
    assert default_sampling_params(mixed)["temperature"] == 0.1
    assert default_sampling_params(mixed)["top_k"] == 20


def test_the_model_answers_to_its_name_as_given(cpu, qwen3_8b):
    assert make(cpu, qwen3_8b, model="a/b").model.served_model_name == ("a/b",)
    named = make(cpu, qwen3_8b, model="a/b", served_model_name=["x", "y"])
    assert named.model.served_model_name == ("x", "y")


def test_the_config_is_frozen_and_resolving_is_repeatable(cpu, qwen3_8b):
    config = make(cpu, qwen3_8b)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.scheduler.max_num_seqs = 1
    assert make(cpu, qwen3_8b) == config


@pytest.mark.parametrize("asked", ["int8", "int4"])
def test_quantization_of_any_checkpoint_on_a_cpu(cpu, qwen3_8b, asked):
    facts = ModelFacts(hf_config=qwen3_8b)
    assert resolve(EngineOptions(quantization=asked), cpu, facts=facts).model.quantization == asked
    assert resolve(EngineOptions(), cpu, facts=facts).model.quantization is None


@pytest.mark.parametrize("asked", ["int8", "int4", "gguf"])
def test_quantization_is_refused_on_a_gpu(h200, qwen3_8b, asked):
    facts = ModelFacts(hf_config=qwen3_8b, kind="gguf")
    with pytest.raises(ConfigError, match=r"a GPU with --quantization is refused.*run on CPUs"):
        resolve(EngineOptions(quantization=asked), h200, facts=facts)


@pytest.mark.parametrize(
    ("kind", "options", "part"),
    [
        ("safetensors", {"quantization": "gguf"}, "come as safetensors; use --quantization int8"),
        ("gguf", {"quantization": "gguf", "load_format": "dummy"}, "come as dummy"),
        ("sharded_state", {"quantization": "int4"}, "saved as sharded_state"),
        ("safetensors", {"quantization": "awq"}, "expected one of int8, int4, gguf"),
    ],
)
def test_quantizations_that_have_nothing_to_pack(cpu, qwen3_8b, kind, options, part):
    with pytest.raises(ConfigError, match=part):
        resolve(EngineOptions(**options), cpu, facts=ModelFacts(hf_config=qwen3_8b, kind=kind))


@pytest.mark.parametrize("backend", ["flashinfer", "torch_sdpa"])
def test_attention_that_plans_on_the_host_is_in_no_graph(backend, h200, qwen3_8b):
    facts = ModelFacts(hf_config=qwen3_8b)
    config = resolve(EngineOptions(attention_backend=backend), h200, facts=facts)
    assert config.compilation.cudagraph_capture_sizes == ()
    assert config.compilation.max_cudagraph_capture_size == 0
    assert any(f"{backend} plans every step on the host" in note for note in config.notes)
