import dataclasses

import pytest

from octavo.kernels.op import (
    INVARIANT_KERNEL_SETS,
    KERNEL_SETS,
    KernelSet,
    kernels_for,
    reference_kernels,
)
from octavo.types.errors import ConfigError


def test_cpu_runs_c_kernels_or_the_reference():
    assert kernels_for("cpu").name in ("native", "reference")
    assert reference_kernels().name == "reference"


def test_a_set_is_complete_and_fixed():
    kernels = reference_kernels()
    for field in dataclasses.fields(KernelSet):
        assert field.name == "name" or callable(getattr(kernels, field.name))
    with pytest.raises(dataclasses.FrozenInstanceError):
        kernels.linear = None


def test_unknown_device_lists_the_known():
    with pytest.raises(ConfigError, match=r"device type 'tpu'.*cpu, cuda"):
        kernels_for("tpu")
    assert KERNEL_SETS.names() == INVARIANT_KERNEL_SETS.names() == ["cpu", "cuda"]
    with pytest.raises(ConfigError, match=r"device type 'tpu'.*cpu, cuda"):
        kernels_for("tpu", batch_invariant=True)
