"""Layers with and without windows in one model, through everything that moves blocks about.

The requests are longer than the windows, so blocks are given up while others share them.
"""

import itertools

import pytest

from combos.answers import assert_same
from combos.requests import MAX_MODEL_LEN, Work, greedy, ids, seeded
from combos.runs import Mix, serve, start

NEAR = 1e-4
# All pairs of (chunk, prefix cache, few blocks, steps in flight), as in test_mix.
PAIRS = [
    Mix(16, True, False, 1),
    Mix(16, False, True, 2),
    Mix(256, True, True, 2),
    Mix(256, False, False, 1),
    Mix(None, True, True, 1),
    Mix(None, False, False, 2),
]
WINDOW = 24
# KV groups of each model: (of full attention, of sliding layers).
GROUPS = {
    "gemma3": (2, 5),
    "gemma2": (1, 1),
    "cohere2": (1, 4),
    "olmo3": (1, 4),
    "exaone4": (1, 4),
    "phi3": (0, 1),
}
SHARED = ids(48, 1)
WORKS = [
    Work("short", ids(3, 2), greedy(40, ignore_eos=True)),
    Work("window", ids(24, 3), greedy(40, ignore_eos=True)),
    Work("long", ids(90, 4), greedy(30, ignore_eos=True)),
    Work("long, drawn", ids(80, 5), seeded(6, 30, ignore_eos=True)),
    *(
        Work(f"shared {n}", SHARED[:n] + ids(7, n), greedy(24, ignore_eos=True))
        for n in (16, 20, 32, 40, 48)
    ),
    *(Work(f"shared again {n}", SHARED + ids(n, 60 + n), greedy(20)) for n in (1, 17, 33)),
]


def few_blocks(name, mix):
    """One request of the largest length, and the null block."""
    whole = MAX_MODEL_LEN // 16
    sliding = min(whole, -(-(WINDOW - 1 + (mix.chunk or 256)) // 16) + 1)
    full_groups, sliding_groups = GROUPS[name]
    return full_groups * whole + sliding_groups * sliding + 1


@pytest.mark.parametrize("mix", PAIRS, ids=str)
@pytest.mark.parametrize(
    "name", ["gemma3", *(pytest.param(n, marks=pytest.mark.slow) for n in list(GROUPS)[1:])]
)
def test_all_pairs(family, name, mix):
    tiny = family(name)
    expected = [tiny.plain.answer(work) for work in WORKS]
    for made in itertools.chain.from_iterable(answer.sequences for answer in expected):
        assert min(made.gaps, default=1.0) > NEAR, "the machine would choose"
    llm = start(tiny.folder, **mix.options(few_blocks(name, mix)))
    try:
        first = serve(llm, WORKS)
        assert_same(expected, first.answers, str(mix))
        # A step as long as a request claims all of its blocks at once: the next one may wait.
        if not mix.few_blocks or mix.chunk == 16:
            preempted = first.num_preemptions > 0
            assert preempted == mix.few_blocks, "the mix is not what it says"
        again = serve(llm, WORKS[::-1])
        assert_same(expected[::-1], again.answers, f"{mix}, again in reverse")
        assert (again.num_prefix_hits > 0) == mix.prefix_cache
    finally:
        llm.shutdown()
