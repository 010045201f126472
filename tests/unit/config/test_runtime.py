"""The compiler's mode and batch-invariant mode, from what may be written to what is resolved."""

from __future__ import annotations

import pytest

from octavo.config.engine_options import EngineOptions
from octavo.config.resolve import ModelFacts, resolve
from octavo.types.errors import ConfigError

MODES = ("NONE", "STOCK_TORCH_COMPILE", "DYNAMO_TRACE_ONCE", "VLLM_COMPILE")


@pytest.fixture
def resolved(h200, qwen3_8b):
    def config_of(values):
        options = EngineOptions.from_dict(values)
        return resolve(options, h200, facts=ModelFacts(hf_config=qwen3_8b))

    return config_of


@pytest.mark.parametrize(
    ("values", "mode"),
    [
        ({}, "NONE"),
        ({"optimization_level": 0}, "NONE"),
        ({"optimization_level": 1}, "VLLM_COMPILE"),
        ({"optimization_level": "2"}, "VLLM_COMPILE"),
        ({"optimization_level": 3}, "VLLM_COMPILE"),
        ({"compilation_mode": "stock_torch_compile"}, "STOCK_TORCH_COMPILE"),
        ({"optimization_level": 2, "compilation_mode": "NONE"}, "NONE"),
        ({"compilation_config": {"mode": "DYNAMO_TRACE_ONCE"}}, "DYNAMO_TRACE_ONCE"),
        *(({"compilation_config": {"mode": n}}, name) for n, name in enumerate(MODES)),
        *(({"compilation_mode": str(n)}, name) for n, name in enumerate(MODES)),
    ],
)
def test_modes_have_names_numbers_and_levels(values, mode, resolved):
    assert resolved(values).compilation.compilation_mode == mode


def test_level_zero_has_no_graphs(resolved):
    assert resolved({"optimization_level": 0}).compilation.cudagraph_capture_sizes == ()
    assert resolved({"optimization_level": 1}).compilation.cudagraph_capture_sizes


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"compilation_mode": "FAST"}, "compilation_mode='FAST': expected one of NONE"),
        ({"compilation_config": {"mode": 4}}, "compilation_mode=4"),
        ({"compilation_config": {"mode": True}}, "compilation_mode=True"),
        ({"optimization_level": 4}, "optimization_level=4 is outside"),
        ({"compilation_config": {"backend": "eager"}}, "unknown option 'backend'"),
        ({"optimization_level": 0, "compilation_mode": 3}, "-O0 with torch.compile is refused"),
        ({"enforce_eager": True, "optimization_level": 2}, "with torch.compile is refused"),
        ({"batch_invariant": True, "optimization_level": 1}, "order of sums"),
    ],
)
def test_what_can_not_be_is_refused(values, part, resolved):
    with pytest.raises(ConfigError, match=part):
        resolved(values)


def test_batch_invariance_is_asked_for(resolved):
    assert not resolved({}).kernel.batch_invariant
    assert resolved({"batch_invariant": True}).kernel.batch_invariant
    assert resolved({"kernel_config": {"batch_invariant": "true"}}).kernel.batch_invariant
    assert resolved({}).compute_hash() != resolved({"batch_invariant": True}).compute_hash()
