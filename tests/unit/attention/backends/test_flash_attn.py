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
        monkeypatch.setattr(
            flash_attn.importlib.util,
            "find_spec",
            lambda name: object() if name in modules else None,
        )

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
        ("flash_attn.cute", {"params": dataclasses.replace(PARAMS, sinks=torch.zeros(8))}),
        ("flash_attn.flash_attn_interface", {"block_size": 256, "capability": (8, 6)}),
    ],
)
def test_served(install, module, change):
    install(module)
    assert FlashAttention.unsupported(setup_of(**change)) == []


def test_what_a_package_is_given(install, monkeypatch):
    """Pages in the order of the rows, keys and values apart, the window as keys before a query."""
    given = {}

    def attention(q, keys, values, **options):
        given.update(options, keys=keys, values=values)
        return torch.ones_like(q)

    module = types.ModuleType("flash_attn_interface")
    module.flash_attn_with_kvcache = attention
    monkeypatch.setitem(sys.modules, "flash_attn_interface", module)
    install("flash_attn_interface")
    params = dataclasses.replace(PARAMS, sliding_window=7, soft_cap=30.0)
    step = make_step([1, 3], [20, 40], params, 16)
    backend = FlashAttention(setup_of(params))
    out = backend.forward(step.q, step.kv, backend.build_metadata(step.batch), params)
    assert out.shape == (4, 8 * 64)
    assert torch.equal(given["page_table"], step.batch.block_table[step.batch.slots])
    for part, name in enumerate(("keys", "values")):
        expected = step.kv[:, part].transpose(1, 2)
        assert given[name].data_ptr() == expected.data_ptr()
        assert given[name].shape == expected.shape
        assert given[name].stride() == expected.stride()
    assert given["window_size"] == (6, 0)
    assert given["softcap"] == 30.0
    assert given["causal"] is True
