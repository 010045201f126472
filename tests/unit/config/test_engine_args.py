"""EngineArgs from four kinds of source, and from files to a configuration."""

from __future__ import annotations

import json
import logging

import pytest

from octavo.checkpoints import locate
from octavo.config.engine_args import EngineArgs
from octavo.config.engine_options import engine_options
from octavo.config.flags import FlagParser, add_flags
from octavo.config.model import DEFAULT_MODEL
from octavo.config.sources import add_model_and_config, parse_options
from octavo.types.errors import CheckpointError, ConfigError

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "eos_token_id": 2,
    "dtype": "float32",
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.5, "eos_token_id": 3}')
    return tmp_path


def from_flags(*words):
    parser = FlagParser("octavo", "")
    add_model_and_config(parser)
    add_flags(parser, engine_options(), sections=True)
    return EngineArgs(**parse_options(parser, words, engine_options())[0])


def test_four_ways_give_one_dump(folder, tmp_path, cpu):
    model = str(folder)
    keywords = EngineArgs(
        model=model,
        load_format="dummy",
        max_model_len=256,
        max_num_seqs=8,
        block_size=32,
        enable_prefix_caching=False,
        scheduling_policy="priority",
        served_model_name=("a", "b"),
        attention_backend="torch_sdpa",
        hf_overrides={"rms_norm_eps": 1e-5},
        gpu_memory_utilization=0.5,
    )
    flags = from_flags(
        *[model, "--load-format", "dummy", "--max_model_len=256", "--max-num-seqs", "8"],
        *["--block-size", "32", "--no-enable-prefix-caching", "--scheduling-policy", "priority"],
        *["--served-model-name", "a", "b", "--attention-backend", "torch_sdpa"],
        *["--hf-overrides", '{"rms_norm_eps": 1e-5}', "--gpu-memory-utilization", ".5"],
    )
    file = tmp_path / "args.yaml"
    file.write_text(
        f"model: {model}\nload-format: dummy\nmax-model-len: 256\nmax-num-seqs: 8\n"
        "block-size: 32\nenable-prefix-caching: false\nscheduling-policy: priority\n"
        "served-model-name: [a, b]\nattention-backend: torch_sdpa\n"
        "hf-overrides: {rms_norm_eps: 1.0e-5}\ngpu-memory-utilization: 0.5\n"
    )
    yaml = from_flags("--config", str(file))
    nested = EngineArgs.from_dict(
        {
            "model_config": {
                "model": model,
                "max_model_len": "256",
                "served_model_name": ["a", "b"],
                "hf_overrides": {"rms_norm_eps": 1e-5},
            },
            "load_config": {"load_format": "dummy"},
            "cache_config": {
                "block_size": 32,
                "enable_prefix_caching": False,
                "gpu_memory_utilization": 0.5,
            },
            "scheduler_config": {"max_num_seqs": 8, "policy": "priority"},
            "attention_config": {"backend": "torch_sdpa"},
        }
    )
    dotted = from_flags(
        *["--model-config", json.dumps({"model": model, "max_model_len": 256})],
        *["--model-config.served_model_name", '["a", "b"]', "--hf-overrides.rms_norm_eps=1e-5"],
        *["--load-config.load_format", "dummy", "--cache-config.block_size=32"],
        *["--cache-config.enable_prefix_caching=false", "-ac.backend", "torch_sdpa"],
        *["--cache-config.gpu_memory_utilization", "0.5"],
        *["--scheduler-config", '{"max_num_seqs": 8, "policy": "priority"}'],
    )
    assert keywords == flags == yaml == nested == dotted
    dumps = {
        json.dumps(args.create_engine_config(cpu).dump())
        for args in (keywords, flags, yaml, nested, dotted)
    }
    assert len(dumps) == 1


def test_a_config_from_files(folder, cpu, caplog):
    logger = logging.getLogger("octavo")
    logger.addHandler(caplog.handler)
    try:
        args = EngineArgs(model=str(folder), load_format="dummy")
        config = args.create_engine_config(cpu, "server")
    finally:
        logger.removeHandler(caplog.handler)
    assert config.model.arch.hidden_size == 64
    assert config.model.eos_token_ids == (2, 3)
    assert config.model.generation_defaults == {"temperature": 0.5}
    assert config.scheduler.max_num_batched_tokens == 2048
    for note in config.notes:
        assert caplog.messages.count(note) == 1


def test_generation_config_from_elsewhere(folder, tmp_path, cpu):
    other = tmp_path / "other"
    other.mkdir()
    (other / "generation_config.json").write_text('{"top_k": 7}')
    args = EngineArgs(model=str(folder), load_format="dummy", generation_config=str(other))
    assert args.create_engine_config(cpu).model.generation_defaults == {"top_k": 7}
    missing = EngineArgs(model=str(folder), load_format="dummy", generation_config="/no/such")
    with pytest.raises(ConfigError, match="generation_config='/no/such'"):
        missing.create_engine_config(cpu)


def test_unknown_names_and_models():
    with pytest.raises(ConfigError, match="did you mean max_num_seqs"):
        EngineArgs.from_dict({"max_num_seq": 1})
    with pytest.raises(TypeError):
        EngineArgs(max_num_seq=1)
    with pytest.raises(CheckpointError):
        EngineArgs(model="/no/such/model").create_engine_config()


def test_the_device_can_be_chosen(folder):
    args = EngineArgs(model=str(folder), load_format="dummy", device="cpu")
    assert args.create_engine_config().device.device_type == "cpu"


def test_the_default_model_is_the_locator_s():
    assert DEFAULT_MODEL == locate.DEFAULT_MODEL == EngineArgs().model
