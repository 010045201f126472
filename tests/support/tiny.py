"""A model folder with a byte-level tokenizer and no weights, and configurations that use it."""

from __future__ import annotations

import dataclasses
import functools
import json
import tempfile
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from octavo.config.engine_args import EngineArgs
from octavo.config.octavo_config import OctavoConfig
from octavo.types.platform_info import PlatformInfo

VOCAB_SIZE = 320  # of the model; the tokenizer knows the 3 special tokens and 256 bytes
EOS = 2
PLATFORM = PlatformInfo(
    device_type="cpu",
    device_name="test",
    total_memory=8 << 30,
    free_memory=8 << 30,
    num_cpus=2,
)
FAKE_EXECUTOR = "support.fake_executor:FakeExecutor"


@functools.cache
def tiny_folder() -> str:
    """A folder that lives as long as the test process."""
    folder = Path(_keep_alive().name)
    specials = ["<unk>", "<s>", "</s>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate([*specials, *letters])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in specials])
    tokenizer.save(str(folder / "tokenizer.json"))
    template = (
        "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    write(folder / "tokenizer_config.json", eos_token="</s>", chat_template=template)
    write(
        folder / "config.json",
        architectures=["LlamaForCausalLM"],
        model_type="llama",
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=4,
        vocab_size=VOCAB_SIZE,
        max_position_embeddings=512,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        tie_word_embeddings=True,
        hidden_act="silu",
        torch_dtype="float32",
        bos_token_id=1,
        eos_token_id=EOS,
    )
    return str(folder)


@functools.cache
def _keep_alive() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tiny-model-")


def write(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(values))


def fake_config(*, executor: str = FAKE_EXECUTOR, **kwargs: Any) -> OctavoConfig:
    """A configuration of the tiny model, run by the fake executor."""
    values = {"max_num_seqs": 8, "max_num_batched_tokens": 64, "max_model_len": 256} | kwargs
    args = EngineArgs(model=tiny_folder(), load_format="dummy", **values)
    config = args.create_engine_config(PLATFORM)
    parallel = dataclasses.replace(config.parallel, distributed_executor_backend=executor)
    return dataclasses.replace(config, parallel=parallel)
