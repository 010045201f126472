"""Chunk size x prefix cache x preemption x steps in flight, in full on one family.

Every request has the tokens, texts, reasons and logprobs of a plain loop over transformers' model.
"""

import itertools

import pytest

from combos.answers import assert_same
from combos.runs import Mix, serve, start

MIXES = [
    Mix(chunk, prefix_cache, few_blocks, steps)
    for chunk, prefix_cache, few_blocks, steps in itertools.product(
        (16, 256, None), (True, False), (False, True), (1, 2)
    )
]


@pytest.mark.parametrize("mix", MIXES, ids=str)
def test_every_mix_gives_the_plain_answers(family, mix):
    check(family("llama"), mix)


# All pairs of the four values, in six mixes.
PAIRS = [
    Mix(16, True, False, 1),
    Mix(16, False, True, 2),
    Mix(256, True, True, 2),
    Mix(256, False, False, 1),
    Mix(None, True, True, 1),
    Mix(None, False, False, 2),
]


def test_the_pairs_are_all_pairs():
    def pairs(mixes):
        values = [(m.chunk, m.prefix_cache, m.few_blocks, m.steps_in_flight) for m in mixes]
        return {
            (i, mix[i], j, mix[j]) for mix in values for i, j in itertools.combinations(range(4), 2)
        }

    assert pairs(PAIRS) == pairs(MIXES)


@pytest.mark.parametrize("mix", PAIRS, ids=str)
@pytest.mark.parametrize(
    "name",
    # Layers of both kinds in one model say more about Qwen2 than those of one kind.
    [pytest.param("qwen2", marks=pytest.mark.slow), "qwen2-window", "qwen3", "mistral-window"],
)
def test_all_pairs_of_other_families(family, name, mix):
    check(family(name), mix, FEW_BLOCKS.get(name))


@pytest.mark.parametrize("mix", [PAIRS[1], PAIRS[2], PAIRS[3]], ids=str)
def test_a_core_in_a_process_of_its_own(family, mix):
    check(family("llama"), mix, own_process=True)


# One request of the largest length, the null block and a few: three groups of layers take three
# blocks for 16 tokens, and those behind a window are given up early.
FEW_BLOCKS = {"qwen2-window": 32, "mistral-window": 14}


def check(tiny, mix, few_blocks=None, *, own_process=False):
    """Serve the workload; with two steps in flight in reverse, too, over what is cached by then."""
    llm = start(tiny.folder, own_process=own_process, **mix.options(few_blocks))
    try:
        run = serve(llm, tiny.works)
        assert_same(tiny.expected, run.answers, str(mix))
        assert (run.num_preemptions > 0) == mix.few_blocks, "the mix is not what it says"
        assert (run.num_prefix_hits > 0) == mix.prefix_cache
        if mix.prefix_cache and mix.steps_in_flight == 2:
            again = serve(llm, tiny.works[::-1])
            assert_same(tiny.expected[::-1], again.answers, f"{mix}, again in reverse")
            assert again.num_prefix_hits > run.num_prefix_hits or mix.few_blocks
    finally:
        llm.shutdown()
