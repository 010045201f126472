"""The table of refused features and what is made of it."""

from __future__ import annotations

import itertools

import pytest

from octavo.config import compat
from octavo.config.compat import REFUSALS, Feature
from octavo.config.engine_options import EngineOptions
from octavo.config.resolve import ModelFacts, resolve
from octavo.types.errors import ConfigError

# Options that turn each feature on, where options do.
OPTIONS = {
    Feature.EAGER: {"enforce_eager": True},
    Feature.GRAPH_SIZES: {"cudagraph_capture_sizes": [1, 2]},
    Feature.COMPILED: {"compilation_mode": "VLLM_COMPILE"},
    Feature.BATCH_INVARIANT: {"batch_invariant": True},
    Feature.TRITON_ATTENTION: {"attention_backend": "triton"},
    Feature.WHOLE_PREFILL: {"enable_chunked_prefill": False},
    Feature.PREFILL_THRESHOLD: {"long_prefill_token_threshold": 64},
    Feature.PREFIX_CACHING: {"enable_prefix_caching": True},
    Feature.ASYNC_SCHEDULING: {"async_scheduling": True},
    Feature.PRIORITY: {"scheduling_policy": "priority"},
    Feature.LOGITS_PROCESSORS: {"logits_processors": ["a.b:C"]},
    Feature.OTHER_KV_DTYPE: {"kv_cache_dtype": "float16"},
    Feature.PACKED_WEIGHTS: {"quantization": "int8"},
    Feature.TENSOR_PARALLEL: {"tensor_parallel_size": 2},
    Feature.PIPELINE_PARALLEL: {"pipeline_parallel_size": 2},
    Feature.DATA_PARALLEL: {"data_parallel_size": 2},
    Feature.POOLING: {"runner": "pooling"},
}


@pytest.mark.parametrize("pair", list(itertools.combinations(OPTIONS, 2)))
@pytest.mark.parametrize("device", ["cpu", "h200"])
def test_resolve_enforces_the_table(pair, device, request, qwen3_8b):
    platform = request.getfixturevalue(device)
    options = EngineOptions(**{k: v for feature in pair for k, v in OPTIONS[feature].items()})
    used = {*pair, Feature.PREFIX_CACHING, Feature.ASYNC_SCHEDULING}
    used.add(Feature.CPU if device == "cpu" else Feature.GPU)
    refused = [r for r in REFUSALS if r.features <= used]
    if not refused:
        resolve(options, platform, facts=ModelFacts(hf_config=qwen3_8b))
        return
    with pytest.raises(ConfigError) as caught:
        resolve(options, platform, facts=ModelFacts(hf_config=qwen3_8b))
    assert refused[0].reason in str(caught.value)
    assert refused[0].remedy in str(caught.value)


def test_a_quantized_checkpoint_is_refused(cpu, qwen3_8b):
    quantized = qwen3_8b | {"quantization_config": {"quant_method": "awq"}}
    with pytest.raises(ConfigError, match="a quantized checkpoint is refused"):
        resolve(EngineOptions(), cpu, facts=ModelFacts(hf_config=quantized))


def test_every_feature_can_be_recognized(cpu, qwen3_8b):
    assert set(compat._RECOGNIZE) == set(Feature)


def test_allowed_and_refused_pairs_partition():
    features = list(Feature)
    allowed = set(compat.allowed_pairs())
    for first, second in itertools.combinations(features, 2):
        assert ((first, second) in allowed) == (compat.refusal_of(first, second) is None)
    assert (Feature.PREFIX_CACHING, Feature.ASYNC_SCHEDULING) in allowed
    assert (Feature.CPU, Feature.TRITON_ATTENTION) not in allowed


@pytest.mark.parametrize("render", [compat.matrix_text, compat.matrix_markdown])
def test_the_printed_table_has_every_feature_and_reason(render):
    text = render()
    for feature in Feature:
        assert feature.value in text
    for refusal in REFUSALS:
        assert refusal.reason in text
        assert refusal.remedy in text
