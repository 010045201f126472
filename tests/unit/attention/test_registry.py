import pytest
import torch

from octavo.attention import registry
from octavo.attention.backends.cpu_native import CPUNativeAttention
from octavo.attention.backends.torch_sdpa import TorchSDPA
from octavo.attention.interface import AttentionParams
from octavo.attention.registry import (
    ATTENTION_BACKENDS,
    register_backend,
    select_backend,
)
from octavo.types.errors import ConfigError
from octavo.utils.registry import Registry
from support.attention_steps import make_setup

PLAIN = AttentionParams(scale=1.0, num_heads=2, num_kv_heads=1, head_size=16)
SINKS = AttentionParams(scale=1.0, num_heads=2, num_kv_heads=1, head_size=16, sinks=torch.zeros(2))


def test_cpu_runs_the_c_kernels_or_pytorch(monkeypatch):
    native = (
        CPUNativeAttention
        if not CPUNativeAttention.unsupported(make_setup(PLAIN, 16))
        else TorchSDPA
    )
    assert select_backend(make_setup(PLAIN, 16)) is native
    monkeypatch.setattr("octavo.attention.backends.cpu_native.paged_attention", lambda size: "no C")
    assert select_backend(make_setup(PLAIN, 16)) is TorchSDPA


def test_a_named_backend_that_cannot_serve_is_an_error():
    with pytest.raises(
        ConfigError, match=r"'torch_sdpa' can't be used here: it has no attention sinks"
    ):
        select_backend(make_setup(SINKS, 16), "torch_sdpa")


def test_no_backend_lists_every_reason():
    with pytest.raises(ConfigError, match=r"not torch_sdpa: it has no attention sinks"):
        select_backend(make_setup(SINKS, 16))


def test_unknown_name_lists_what_there_is():
    with pytest.raises(ConfigError, match=r"'flash' is not known; there are: .*torch_sdpa"):
        select_backend(make_setup(PLAIN, 16), "flash")


def test_plug_in_backend(monkeypatch):
    table = Registry("attention backend", {"torch_sdpa": TorchSDPA})
    monkeypatch.setattr(registry, "ATTENTION_BACKENDS", table)

    class Mine(TorchSDPA):
        name = "mine"

    register_backend("mine", Mine)
    assert select_backend(make_setup(PLAIN, 16), "mine") is Mine
    assert "mine" not in ATTENTION_BACKENDS


def test_a_device_without_backends():
    setup = make_setup(PLAIN, 16, device="meta")
    assert setup.device == torch.device("meta")
    with pytest.raises(ConfigError, match="none is preferred"):
        select_backend(setup)
