"""A compiled model: the same results, traced once for every step, equal layers compiled once."""

from __future__ import annotations

import dataclasses
import shutil

import pytest
import torch

from octavo.checkpoints.locate import find_model
from octavo.kernels.op import reference_kernels
from octavo.model_loader.loader import MappedReader, load_into
from octavo.models.registry import build_model
from octavo.types.errors import ConfigError
from octavo.worker import piecewise
from octavo.worker.compile import COMPILERS, NoCompiler, model_compiler
from support.paged_model import PagedModel
from support.tiny_models import load_tiny, model_context, save_tiny

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
MODES = [
    pytest.param("STOCK_TORCH_COMPILE", marks=pytest.mark.slow),
    "DYNAMO_TRACE_ONCE",
    "VLLM_COMPILE",
]
PROMPTS = [[5, 9, 40, 3], [7], list(range(20, 60)), [100, 101]]


@pytest.fixture(autouse=True)
def _fresh(tmp_path, monkeypatch):
    """A cache of its own, and nothing traced before."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch._dynamo.reset()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch._dynamo.reset()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny Qwen3 of three layers."""
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny("qwen3", folder)
    return folder


def compiled(folder, mode):
    """The model as the worker builds it."""
    files = find_model(str(folder))
    compiler = model_compiler(mode, "cpu")
    context = model_context(files)
    context = dataclasses.replace(context, kernels=compiler.kernels(context.kernels))
    model = compiler.model(build_model(context))
    load_into(model, files, "auto", MappedReader())
    return model


def test_without_a_mode_nothing_changes():
    compiler = model_compiler("NONE", "cpu")
    kernels, model = reference_kernels(), object()
    assert isinstance(compiler, NoCompiler)
    assert compiler.kernels(kernels) is kernels
    assert compiler.model(model) is model


@needs_compiler
@pytest.mark.parametrize("mode", MODES)
def test_tokens_are_those_of_the_model_as_written(folder, mode):
    expected = PagedModel(load_tiny(folder)).greedy(PROMPTS, 6, chunk=16)
    model = compiled(folder, mode)
    assert PagedModel(model).greedy(PROMPTS, 6, chunk=16) == expected


@needs_compiler
@pytest.mark.parametrize("family", ["gemma2", pytest.param("phi3", marks=pytest.mark.slow)])
def test_layers_with_functions_of_pytorch_are_compiled_too(family, tmp_path):
    folder = tmp_path / "model"
    save_tiny(family, folder)
    expected = PagedModel(load_tiny(folder)).greedy(PROMPTS, 4)
    assert PagedModel(compiled(folder, "VLLM_COMPILE")).greedy(PROMPTS, 4) == expected


@needs_compiler
def test_traced_once_and_equal_layers_compiled_once(folder, monkeypatch):
    """Three layers make four pieces: before, between, between and after their attentions."""
    made, traced = [], []
    compile_piece, call = piecewise.standalone_compile, piecewise.PiecewiseBackend.__call__
    monkeypatch.setattr(
        piecewise,
        "standalone_compile",
        lambda *args, **options: made.append(args) or compile_piece(*args, **options),
    )
    monkeypatch.setattr(
        piecewise.PiecewiseBackend,
        "__call__",
        lambda self, *args, **options: traced.append(self) or call(self, *args, **options),
    )
    paged = PagedModel(compiled(folder, "VLLM_COMPILE"))
    eager = PagedModel(load_tiny(folder))
    sequences = [(paged.sequence(), eager.sequence()) for _ in range(3)]
    for lengths in ([1, 0, 0], [5, 1, 0], [1, 1, 1], [1, 30, 2], [0, 0, 1]):
        for model, side in ((paged, 0), (eager, 1)):
            rows = [
                (pair[side], [11 + i] * n)
                for i, (pair, n) in enumerate(zip(sequences, lengths, strict=True))
                if n
            ]
            results = model.step(rows)
            if model is paged:
                found = results
        for got, want in zip(found, results, strict=True):
            torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)
    assert len(traced) == 1
    assert (traced[0].num_pieces, traced[0].num_compiled, len(made)) == (4, 3, 3)


@needs_compiler
def test_code_is_kept_on_disk(folder, tmp_path):
    PagedModel(compiled(folder, "VLLM_COMPILE")).greedy(PROMPTS[:1], 1)
    kept = tmp_path / "inductor" / "fxgraph"
    assert len([path for path in kept.glob("*/*") if path.is_dir()]) == 3
    before = set(kept.rglob("*"))
    torch._dynamo.reset()
    hits = torch._dynamo.utils.counters["inductor"]["fxgraph_cache_hit"]
    PagedModel(compiled(folder, "VLLM_COMPILE")).greedy(PROMPTS[:1], 1)
    counters = torch._dynamo.utils.counters
    reused = counters["inductor"]["fxgraph_cache_hit"] - hits
    assert reused + counters["aot_autograd"]["autograd_cache_hit"] >= 3
    assert set(kept.rglob("*")) == before


def test_no_compiler_is_told():
    compiler = COMPILERS.get("VLLM_COMPILE")
    nowhere = torch._inductor.config.patch({"cpp.cxx": ("no-such-compiler",)})
    with nowhere, pytest.raises(ConfigError, match=r"needs a C\+\+ compiler; install g\+\+"):
        compiler("VLLM_COMPILE", "cpu")


@needs_compiler
def test_a_model_that_can_not_be_traced_is_named(folder):
    model = compiled(folder, "VLLM_COMPILE")

    def untraceable(x):
        return x * float(x.sum().item() > 0) if x.sum() > 0 else x

    model.get_submodule("_model.model.norm").register_forward_pre_hook(lambda *_: None)
    model._model.model.layers[0].mlp.forward = untraceable
    with pytest.raises(ConfigError, match=r"torch\.compile can't take Qwen3ForCausalLM"):
        PagedModel(model).greedy(PROMPTS[:1], 1)
