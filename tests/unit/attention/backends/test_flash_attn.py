"""Which FlashAttention package serves what, without any of them; the rest needs a GPU."""

from __future__ import annotations

import dataclasses
import sys
import types

import pytest
import torch

from octavo.attention.backends import flash_attn
from octavo.attention.backends.flash_attn import LIBRARIES, FlashAttention
from octavo.attention.interface import AttentionParams
from support.attention_steps import make_setup, make_step

PARAMS = AttentionParams(scale=0.125, num_heads=8, num_kv_heads=2, head_size=64)


def setup_of(params=PARAMS, block_size=16, dtype=torch.bfloat16, capability=(9, 0)):
    setup = make_setup(params, block_size, dtype=dtype)
    return dataclasses.replace(setup, device=torch.device("cuda"), capability=capability)


@pytest.fixture
def install(monkeypatch):
    """Pretend that the packages of some modules are installed."""

    def pretend(*modules):
        monkeypatch.setattr(flash_attn, "_can_be_found", lambda name: name in modules)

    return pretend


def test_nothing_installed_names_every_package(install):
    install()
    (reason,) = FlashAttention.unsupported(setup_of())
    assert all(library.name in reason for library in LIBRARIES)


@pytest.mark.parametrize(
    ("module", "change", "word"),
    [
        ("flash_attn_interface", {"capability": (8, 0)}, "compute capability 8"),
        ("flash_attn_interface", {"params": {"sinks": torch.zeros(8)}}, "sinks"),
        ("flash_attn.flash_attn_interface", {}, "multiple of 256"),
        ("vllm.vllm_flash_attn._vllm_fa3_C", {"capability": (10, 0)}, "compute capability 10"),
        ("flash_attn.cute", {"dtype": torch.float32}, "float32"),
        ("flash_attn.cute", {"params": {"head_size": 260}}, "head size 260"),
        ("flash_attn.cute", {"params": {"alibi_slopes": torch.zeros(8)}}, "ALiBi"),
    ],
)
def test_refused_with_the_reason(install, module, change, word):
    install(module)
    params = dataclasses.replace(PARAMS, **change.pop("params", {}))
    assert word in "; ".join(FlashAttention.unsupported(setup_of(params, **change)))


@pytest.mark.parametrize(
    ("module", "change"),
    [
        ("flash_attn_interface", {}),
        ("vllm.vllm_flash_attn._vllm_fa3_C", {}),
        ("flash_attn.cute", {"params": dataclasses.replace(PARAMS, sinks=torch.zeros(8))}),
        ("flash_attn.flash_attn_interface", {"block_size": 256, "capability": (8, 6)}),
    ],
)
def test_served(install, module, change):
    install(module)
    assert FlashAttention.unsupported(setup_of(**change)) == []


def test_modules_are_found_without_importing_packages(monkeypatch, tmp_path):
    package = tmp_path / "outer" / "inner"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "code.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    found = flash_attn._can_be_found
    assert found("outer")
    assert found("outer.inner")
    assert found("outer.inner.code")
    assert not found("outer.other.code")
    assert not found("outer.inner.code.more")
    assert not found("nowhere.inner")


@pytest.mark.parametrize(
    ("module", "code", "function", "pages", "lengths", "sinks"),
    [
        ("flash_attn_interface", "", "flash_attn_with_kvcache", "page_table", "cache_seqlens", ""),
        (
            "vllm.vllm_flash_attn",
            "vllm.vllm_flash_attn._vllm_fa3_C",
            "flash_attn_varlen_func",
            "block_table",
            "seqused_k",
            "s_aux",
        ),
    ],
)
def test_what_a_package_is_given(
    install, monkeypatch, module, code, function, pages, lengths, sinks
):
    """Pages in the order of the rows, keys and values apart, the window as keys before a query."""
    given = {}

    def attention(q, keys, values, **options):
        given.update(options, keys=keys, values=values)
        return torch.ones_like(q)

    for name in (module.partition(".")[0], module):
        made = types.ModuleType(name)
        setattr(made, function, attention)
        monkeypatch.setitem(sys.modules, name, made)
    install(code or module)
    params = dataclasses.replace(
        PARAMS, sliding_window=7, soft_cap=30.0, sinks=torch.arange(8.0) if sinks else None
    )
    step = make_step([1, 3], [20, 40], params, 16)
    backend = FlashAttention(setup_of(params))
    out = backend.forward(step.q, step.kv, backend.build_metadata(step.batch), params)
    assert out.shape == (4, 8 * 64)
    assert torch.equal(given[pages], step.batch.block_table[step.batch.slots])
    assert torch.equal(given[lengths], step.batch.seq_lens)
    assert torch.equal(given["cu_seqlens_q"], step.batch.query_start_loc)
    if sinks:
        assert given["fa_version"] == 3
        assert given[sinks].dtype is torch.bfloat16
        assert given[sinks].tolist() == list(range(8))
    for part, name in enumerate(("keys", "values")):
        expected = step.kv[:, part].transpose(1, 2)
        assert given[name].data_ptr() == expected.data_ptr()
        assert given[name].shape == expected.shape
        assert given[name].stride() == expected.stride()
    assert given["window_size"] == (6, 0)
    assert given["softcap"] == 30.0
    assert given["causal"] is True
