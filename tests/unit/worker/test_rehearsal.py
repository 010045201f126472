"""What a rehearsal plays: a shortened model, and the steps of a start and after it."""

import dataclasses

import pytest
import torch

from octavo.config.architectures import FULL_ATTENTION, SLIDING_ATTENTION
from octavo.config.engine_options import EngineOptions
from octavo.config.resolve import ModelFacts, resolve
from octavo.types.platform_info import PlatformInfo
from octavo.worker.memory import MemoryLedger
from octavo.worker.rehearsal import RehearsalPlatform, later_plans, shortened
from octavo.worker.warmup import free_memory, largest_steps

H200 = PlatformInfo("cuda", "NVIDIA H200", 140 << 30, 139 << 30, capability=(9, 0))
TINY = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 256,
}


def configure(**options):
    options = {"max_num_seqs": 20, "max_num_batched_tokens": 600} | options
    return resolve(EngineOptions(**options), H200, "llm", facts=ModelFacts(hf_config=TINY))


def with_layers(config, kinds):
    arch = dataclasses.replace(config.model.arch, layer_types=tuple(kinds))
    return dataclasses.replace(config, model=dataclasses.replace(config.model, arch=arch))


@pytest.mark.parametrize(
    ("kinds", "count"),
    [
        ([FULL_ATTENTION] * 6, 1),
        ([SLIDING_ATTENTION, SLIDING_ATTENTION, FULL_ATTENTION] * 2, 3),
        ([FULL_ATTENTION] * 5 + [SLIDING_ATTENTION], 6),
    ],
)
def test_a_layer_of_each_kind(kinds, count):
    short = shortened(with_layers(configure(), kinds)).model.arch
    assert short.num_layers == count
    assert set(short.layer_types) == set(kinds)
    assert all(
        len(value) == count
        for value in vars(short).values()
        if isinstance(value, tuple) and len(value) > 1
    )


def test_later_steps_stay_within_the_limits():
    config = configure()
    plans = list(later_plans(config))
    assert all(plan.num_rows <= 20 and plan.num_tokens <= 600 for plan in plans)
    graphs = {plan.num_rows for plan in plans if plan.plain_decode}
    assert set(config.compilation.cudagraph_capture_sizes) <= graphs
    assert {1, 20} & {plan.num_rows for plan in plans}
    assert max(plan.num_tokens for plan in plans) == 600


def test_the_largest_steps():
    prefill, decode = largest_steps(configure())
    assert prefill.num_tokens == 600
    assert decode.plain_decode
    assert decode.num_rows == 20


class CountedPlatform(RehearsalPlatform):
    """Says what it is told to."""

    def __init__(self, uses):
        super().__init__()
        self.uses = iter(uses)

    def memory_use(self):
        return next(self.uses)

    def memory(self):
        return 50, 100


def test_ledger_and_what_is_left():
    kind = type(RehearsalPlatform().memory_use())
    ledger = MemoryLedger(
        CountedPlatform(
            [
                kind(0, 0, 0, 7),
                kind(10, 10, 12, 7),
                kind(40, 40, 44, 7),
                kind(40, 40, 40, 8),
                kind(40, 55, 60, 9),
                kind(41, 55, 60, 9),
                kind(42, 55, 64, 19),
            ]
        )
    )
    with ledger.kept("weights"):
        pass
    with ledger.passing("largest steps"):
        pass
    with ledger.growth("graphs"):
        pass
    assert ledger.lines() == {
        "context": 7,
        "weights": 30,
        "largest steps": 15,
        "fragmentation": 5,
        "graphs": 14,
    }
    config = configure(gpu_memory_utilization=0.9)
    assert free_memory(config, CountedPlatform([kind(0, 0, 30, 12)])) == 90 - 42
    assert free_memory(config, CountedPlatform([kind(0, 0, 10, 12)])) == 50
    assert RehearsalPlatform().host_buffer((3,), torch.int32).shape == (3,)
