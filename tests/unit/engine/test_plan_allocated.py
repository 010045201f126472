"""Every line of the memory plan against the bytes that an engine really allocates on a CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from octavo import LLM, SamplingParams
from octavo.attention.backends.torch_sdpa import TorchSDPA
from octavo.checkpoints.locate import find_model
from octavo.cli.main import main
from octavo.config.engine_args import EngineArgs
from octavo.engine import byte_counts
from octavo.engine.byte_counts import ATTENTION, EMBEDDING, MLP, NORMS, OUTPUT
from octavo.engine.plan import make_plan
from octavo.layers.linear import Linear
from octavo.layers.rotary import RotaryEmbedding
from octavo.model_loader.process import weight_bytes
from octavo.models.common.decoder import DecoderCausalLM
from octavo.sampling import logprobs
from octavo.sampling.sampler import Sampler
from octavo.sampling.state import SamplingState
from octavo.types.errors import ConfigError
from octavo.worker.device_state import DeviceState
from octavo.worker.kv_cache import allocate_kv_cache
from support.tiny_models import save_tiny

SHARE = 0.03
OPTIONS = {
    "max_model_len": 256,
    "max_num_seqs": 32,
    "max_num_batched_tokens": 1024,
    "kv_cache_memory_bytes": 8 << 20,
    "skip_tokenizer_init": True,
    "device": "cpu",
}


class Engine:
    """An engine in this process, its plan, and the objects whose bytes are planned."""

    def __init__(self, folder: Path, **options) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OCTAVO_ENABLE_MULTIPROCESSING", "0")
            patch.setenv("OCTAVO_CPU_THREADS", "1")
            made = self._note_instances(patch, [DecoderCausalLM, DeviceState, TorchSDPA])
            self.llm = LLM(str(folder), **(OPTIONS | options))
        self.caches = self._caches
        (self.model,) = made[DecoderCausalLM]
        (self.state,) = made[DeviceState]
        self.attention = made[TorchSDPA]
        config = self.llm.config
        self.plan = make_plan(config, find_model(str(folder)).tensor_headers())
        self.planned = {line.name: line.num_bytes for line in self.plan.lines}

    def _note_instances(self, patch, classes):
        """Lists of the instances that are made from now on."""
        made = {cls: [] for cls in classes}
        for cls in classes:
            init = cls.__init__

            def noted(instance, *args, _init=init, _made=made[cls], **kwargs):
                _made.append(instance)
                _init(instance, *args, **kwargs)

            patch.setattr(cls, "__init__", noted)

        def allocate(*args):
            self._caches = allocate_kv_cache(*args)
            return self._caches

        patch.setattr("octavo.worker.build.allocate_kv_cache", allocate)
        return made

    def generate(self, lengths, **params):
        """Serve prompts of these lengths at once."""
        prompts = [[3 + (i + 7 * j) % 190 for j in range(n)] for i, n in enumerate(lengths)]
        sampling = SamplingParams(**({"max_tokens": 2, "ignore_eos": True} | params))
        return self.llm.generate(prompts, sampling, use_tqdm=False)


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Engines by (family, changes of its shape); they live as long as the module's tests."""
    threads = torch.get_num_threads()
    known = {}

    def get(family="llama", *, options=(), **shape):
        key = (family, tuple(options), tuple(shape.items()))
        if key not in known:
            folder = tmp_path_factory.mktemp(family)
            save_tiny(family, folder, **shape)
            known[key] = Engine(folder, **dict(options))
        return known[key]

    yield get
    for engine in known.values():
        engine.llm.shutdown()
    torch.set_num_threads(threads)


def near(planned, allocated):
    assert abs(planned - allocated) <= SHARE * allocated, (planned, allocated)


def storage_bytes(tensors):
    """Bytes of the distinct allocations behind some tensors."""
    return sum(
        {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values()
    )


FAMILIES = ["llama", "llama-tied", "llama-biases", "qwen2", "qwen2-window", "qwen3"]


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_and_their_parts(make, family):
    engine = make(family)
    rotary = sum(
        module.cos_sin.nbytes
        for module in engine.model.modules()
        if isinstance(module, RotaryEmbedding)
    )
    near(engine.planned["rotary table"], rotary)
    near(engine.planned["weights"], weight_bytes(engine.model) - rotary)
    parts = dict.fromkeys((EMBEDDING, ATTENTION, MLP, NORMS, OUTPUT), 0)
    for name, tensor in engine.model.named_parameters():
        parts[part_of(name)] += tensor.nbytes
    for name, module in engine.model.named_modules():
        if isinstance(module, Linear):
            parts[part_of(name)] += module.method.nbytes
    for part, allocated in parts.items():
        near(engine.planned[part], allocated)


def part_of(name):
    if "norm" in name:
        return NORMS
    if name.startswith("lm_head"):
        return OUTPUT
    if "embed_tokens" in name:
        return EMBEDDING
    return ATTENTION if "self_attn" in name else MLP


@pytest.mark.parametrize("family", ["llama", "qwen2-window", "mistral-window"])
def test_cache_and_request_table(make, family):
    engine = make(family)
    near(engine.plan.kv_cache_bytes, storage_bytes(c.kv for c in engine.caches.values()))
    assert len({id(cache.kv) for cache in engine.caches.values()}) == 3
    assert all(cache.kv.shape[0] == engine.plan.num_blocks for cache in engine.caches.values())
    near(engine.planned["request table"], engine.state.data.nbytes)


class Peak(TorchDispatchMode):
    """The most bytes that tensors made in its context held at one time."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        given = {t.untyped_storage()._cdata for t in plain_tensors((args, kwargs))}
        self._live = {k: held for k, held in self._live.items() if not held[0].expired()}
        for tensor in plain_tensors(result):
            storage = tensor.untyped_storage()
            if storage._cdata not in given:
                self._live.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))
        self.bytes = max(self.bytes, sum(size for _, size in self._live.values()))
        return result


def plain_tensors(tree):
    """The tensors of a tree, save repacked weights, whose storage is oneDNN's own."""
    return [t for t in tree_iter(tree) if isinstance(t, torch.Tensor) and not t.is_mkldnn]


def peaks_of(monkeypatch, cls, method):
    """A list that gets the peak of every call of a method."""
    found = []
    original = getattr(cls, method)

    def measured(self, *args, **kwargs):
        with Peak() as peak:
            result = original(self, *args, **kwargs)
        found.append(peak.bytes)
        return result

    monkeypatch.setattr(cls, method, measured)
    return found


SHAPES = {
    "wide MLP": {"intermediate_size": 512},
    "wide stream": {"hidden_size": 516, "intermediate_size": 64},
    "wide heads": {"hidden_size": 64, "num_attention_heads": 16, "head_dim": 32},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_activations(make, monkeypatch, shape):
    """A step as large as there can be; attention's own work space is there from an earlier one."""
    options = {
        "attention_backend": "torch_sdpa",  # the C kernels gather and copy nothing
        "max_num_batched_tokens": 4112,
        "kv_cache_memory_bytes": None,
        "enable_prefix_caching": False,
    }
    engine = make("llama", options=options.items(), **SHAPES[shape])
    steps = [128] * 32, [16] * 8 + [249] * 16
    for lengths in steps:
        engine.generate(lengths, max_tokens=1)
    peaks = peaks_of(monkeypatch, DecoderCausalLM, "forward")
    for lengths in steps:
        engine.generate(lengths, max_tokens=1)
    assert len(peaks) == 2
    near(engine.planned["activations"], max(peaks))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_forward_pass_by_the_c_kernels_needs_less(make, monkeypatch, shape):
    """The plan is made without a look at the compiler, so it must be right without one."""
    options = {"max_num_batched_tokens": 4112, "kv_cache_memory_bytes": 48 << 20}
    engine = make("llama", options=options.items(), **SHAPES[shape])
    peaks = peaks_of(monkeypatch, DecoderCausalLM, "forward")
    engine.generate([128] * 32, max_tokens=1)
    assert 0 < max(peaks) <= engine.planned["activations"]


def test_attention_stays_within_its_work_space(make):
    """At the largest step: as many requests as can be, as long as can be."""
    roomy = {"attention_backend": "torch_sdpa", "kv_cache_memory_bytes": 48 << 20}
    engine = make("llama", options=roomy.items(), num_key_value_heads=6, head_dim=32)
    engine.generate([240] * 32, max_tokens=16, temperature=0.0)
    buffers = sum(
        buffer._data.nbytes
        for backend in engine.attention
        for buffer in (backend._gathered, backend._scores)
    )
    mask = OPTIONS["max_num_batched_tokens"] * OPTIONS["max_model_len"] * 4
    planned = engine.planned["attention"] - mask
    assert planned / byte_counts.CPU_BUFFER_GROWTH <= buffers <= planned


SAMPLING = {
    "greedy": {"temperature": 0.0},
    "drawn": {},
    "penalties": {"presence_penalty": 1.0, "repetition_penalty": 1.2},
    "top_p": {"top_p": 0.9, "min_p": 0.01},
    "logprobs": {"logprobs": 5, "allowed_token_ids": list(range(100)), "top_p": 0.9},
}


def test_logits(make, monkeypatch):
    """Every way to sample stays within the plan, and the costliest fills it."""
    engine = make("llama", vocab_size=32768)
    rows = OPTIONS["max_num_seqs"]
    heads = peaks_of(monkeypatch, DecoderCausalLM, "compute_logits")
    samplers = peaks_of(monkeypatch, Sampler, "__call__")
    needed = {}
    for name, params in SAMPLING.items():
        heads.clear()
        samplers.clear()
        engine.generate([3] * rows, seed=1, **params)
        near(rows * 32768 * 4, heads[-1])
        needed[name] = heads[-1] + max(samplers, default=0)
    assert max(needed.values()) <= (1 + SHARE) * engine.planned["logits"]
    near(engine.planned["logits"], max(needed.values()))
    assert logprobs.CHUNK_ROWS == byte_counts.CPU_LOGPROB_ROWS


def test_sampling_tables(make, monkeypatch):
    """Requests that end by surprise keep their slots for a step: the tables must hold both."""
    engine = make("llama")
    sizes = []
    flush = SamplingState.flush

    def noted(self):
        sizes.append(self.tables.seen.nbytes + self.tables.allowed.nbytes)
        flush(self)

    monkeypatch.setattr(SamplingState, "flush", noted)
    stops = list(range(0, 203, 5))
    engine.generate(
        [5] * 150,
        max_tokens=20,
        presence_penalty=0.1,
        stop_token_ids=stops,
        allowed_token_ids=list(range(203)),
    )
    assert max(sizes) <= engine.planned["sampling tables"]
    near(engine.planned["sampling tables"], max(sizes))


@pytest.mark.parametrize(
    "options",
    [
        {"kv_cache_memory_bytes": 3 << 20},
        {"num_gpu_blocks_override": 77, "block_size": 8},
        {"kv_cache_memory_bytes": None, "max_num_seqs": 4},
        {"max_model_len": "auto", "num_gpu_blocks_override": 13},
    ],
    ids=str,
)
def test_octavo_plan_says_what_the_engine_does(make, capsys, options):
    engine = make("llama", options=options.items())
    flags = []
    for name, value in (OPTIONS | options).items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            flags.append(flag)
        elif value is not None:
            flags += [flag, str(value)]
    assert main(["plan", engine.llm.config.model.model, *flags, "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    facts = engine.llm._engine._client.facts
    assert printed["num_blocks"] == facts.num_blocks
    assert printed["kv_cache_bytes"] == facts.kv_cache_bytes
    assert printed["max_model_len"] == facts.max_model_len
    (pages,) = {cache.kv.shape[0] for cache in engine.caches.values()}
    assert pages == facts.num_blocks


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("tokens", [16, 1024])
@pytest.mark.parametrize("family", ["llama", "mistral-window", "qwen2-window"])
def test_the_fitted_length_can_be_run(make, family, tokens, asynchronous):
    """A request of the length of max_model_len="auto" goes through; one token more can't be had."""
    options = {
        "max_model_len": "auto",
        "num_gpu_blocks_override": 14,
        "max_num_batched_tokens": tokens,
        "max_num_seqs": 8,
        "async_scheduling": asynchronous,
    }
    engine = make(family, options=options.items(), max_position_embeddings=300)
    longest = engine.llm.config.model.max_model_len
    for num_outputs in (1, 20):
        (output,) = engine.generate([longest - num_outputs], max_tokens=longest)
        (made,) = output.outputs
        assert made.finish_reason == "length"
        assert len(made.token_ids) == num_outputs
    if longest < 300:
        args = OPTIONS | options | {"max_model_len": longest + 1}
        config = EngineArgs(model=engine.llm.config.model.model, **args).create_engine_config()
        with pytest.raises(ConfigError, match=str(longest)):
            make_plan(config)
