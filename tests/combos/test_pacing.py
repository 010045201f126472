"""Prompts in parts for the sake of running requests: the tokens stay the same."""

from __future__ import annotations

from combos.requests import Work, greedy, ids
from combos.runs import start


def test_tokens_are_those_of_the_plain_model(family, monkeypatch):
    monkeypatch.setattr("octavo.core.pacing.FLOOR_TOKENS", 16)
    monkeypatch.setattr("octavo.core.pacing.GRANULARITY", 8)
    llama = family("llama")
    works = [Work(str(i), ids(10 + 12 * i, i), greedy(12, ignore_eos=True)) for i in range(8)]
    options = {"itl_target_ms": 1e-3, "max_num_seqs": 4, "max_model_len": 128}
    llm = start(llama.folder, **options)
    try:
        outputs = llm.generate(
            [work.prompt for work in works], [work.params for work in works], use_tqdm=False
        )
    finally:
        llm.shutdown()
    assert [output.outputs[0].token_ids for output in outputs] == [
        llama.plain.answer(work).sequences[0].token_ids for work in works
    ]
