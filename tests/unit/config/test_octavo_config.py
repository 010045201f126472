"""The dump, the hash, and the way to another process."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import msgspec
import pytest

from octavo.config.engine_options import SECTIONS, EngineOptions
from octavo.config.octavo_config import OctavoConfig, outside_graph
from octavo.config.resolve import ModelFacts, resolve


def make(platform, hf_config, **options):
    return resolve(EngineOptions(**options), platform, facts=ModelFacts(hf_config=hf_config))


def test_dump_is_plain_json(h200, qwen3_8b):
    config = make(h200, qwen3_8b)
    plain = config.dump()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["cache"]["block_size"] == 16
    assert plain["model"]["arch"]["head_size"] == 128
    assert plain["device"]["capability"] == [9, 0]


def test_it_travels_by_msgpack(h200, qwen3_8b):
    config = make(h200, qwen3_8b, hf_overrides={"a": {"b": [1]}}, logits_processors=["a:B"])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=OctavoConfig) == config


@pytest.mark.parametrize(
    "change",
    [
        {"gpu_memory_utilization": 0.5},
        {"served_model_name": ["x"]},
        {"seed": 7},
        {"max_waiting_requests": 3},
        {"enable_prefix_caching": False},
        {"disable_log_stats": True},
        {"metrics_prefix": "vllm"},
        {"otlp_traces_endpoint": "http://127.0.0.1:4318"},
        {"logprobs_mode": "raw_logits"},
    ],
)
def test_hash_ignores_what_no_graph_depends_on(change, h200, qwen3_8b):
    assert make(h200, qwen3_8b, **change).compute_hash() == make(h200, qwen3_8b).compute_hash()


@pytest.mark.parametrize(
    "change",
    [
        {"max_num_batched_tokens": 4096},
        {"max_num_seqs": 64},
        {"dtype": "float16"},
        {"block_size": 32},
        {"max_model_len": 1024},
        {"enforce_eager": True},
        {"cudagraph_capture_sizes": [1]},
        {"attention_backend": "torch_sdpa"},
        {"hf_overrides": {"rms_norm_eps": 1e-5}},
    ],
)
def test_hash_sees_what_graphs_depend_on(change, h200, qwen3_8b):
    assert make(h200, qwen3_8b, **change).compute_hash() != make(h200, qwen3_8b).compute_hash()


def test_hash_sees_the_device(h200, a100, qwen3_8b):
    assert make(h200, qwen3_8b).compute_hash() != make(a100, qwen3_8b).compute_hash()


def test_hash_is_the_same_in_another_process(h200, qwen3_8b):
    program = (
        "import json, sys, msgspec\n"
        "from octavo.config.octavo_config import OctavoConfig\n"
        "print(msgspec.json.decode(sys.stdin.buffer.read(), type=OctavoConfig).compute_hash())\n"
    )
    config = make(h200, qwen3_8b)
    answers = {
        subprocess.run(
            [sys.executable, "-c", program],
            input=msgspec.json.encode(config),
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert answers == {config.compute_hash().encode()}


def test_the_fields_left_out_of_the_hash_exist(h200, qwen3_8b):
    plain = make(h200, qwen3_8b).dump()
    for section, names in outside_graph().items():
        assert names <= set(plain[section])


def test_every_option_lands_in_one_section():
    owners = {}
    for section, cls in SECTIONS.items():
        for field in dataclasses.fields(cls):
            assert field.name not in owners, f"{field.name} is in {owners.get(field.name)} too"
            owners[field.name] = section
    assert set(owners) == {field.name for field in dataclasses.fields(EngineOptions)}


def test_a_lower_length_is_a_copy_with_a_note(h200, qwen3_8b):
    config = make(h200, qwen3_8b)
    lower = config.with_max_model_len(100, "because")
    assert (lower.model.max_model_len, lower.notes[-1]) == (100, "because")
    assert config.model.max_model_len == 40960
