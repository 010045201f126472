"""Shared prefixes from the scheduler to the attention backend, and the tokens with and without."""

from __future__ import annotations

import pytest
import torch

from combos.requests import Work, greedy, ids
from combos.runs import run
from octavo.attention.backends.torch_sdpa import TorchSDPA
from octavo.core import shared_prefixes

BLOCK = 16


@pytest.fixture
def told(monkeypatch):
    """Groups of rows as the backend was told of them, each checked against its block tables."""
    monkeypatch.setattr(shared_prefixes, "MIN_SAVED_BYTES", 1)
    monkeypatch.setattr(shared_prefixes, "MIN_PREFIX_TOKENS", 1)
    groups: list[tuple[int, int]] = []
    original = TorchSDPA.build_metadata

    def build_metadata(self, batch):
        shared = batch.shared_prefixes
        if shared is None:
            return original(self, batch)
        assert shared.first_rows.shape == shared.num_tokens.shape == batch.seq_lens.shape
        for row in range(batch.num_rows):
            num_tokens = int(shared.num_tokens[row])
            first = int(shared.first_rows[row])
            if not num_tokens or first == row:
                continue
            assert row < batch.num_decode_rows
            assert batch.query_start_loc[row + 1] - batch.query_start_loc[row] == 1
            assert num_tokens < batch.seq_lens[row]
            count = num_tokens // BLOCK
            tables = batch.block_table[batch.slots[[first, row]], :count]
            assert torch.equal(tables[0], tables[1])
            groups.append((int(shared.first_rows[row]), num_tokens))
        return original(self, batch)

    monkeypatch.setattr(TorchSDPA, "build_metadata", build_metadata)
    return groups


@pytest.mark.parametrize("async_scheduling", [True, False])
def test_tokens_are_those_of_the_plain_model(family, told, async_scheduling):
    llama = family("llama")
    first, second = ids(3 * BLOCK, 1), ids(2 * BLOCK, 2)
    works = [
        Work(f"{name}{i}", [*prefix, *ids(1 + i, 10 * i + 3)], greedy(12 + i, ignore_eos=True))
        for i in range(4)
        for name, prefix in (("first", first), ("second", second), ("alone", ids(20 + i, 50 + i)))
    ]
    options = {
        "attention_backend": "torch_sdpa",
        "async_scheduling": async_scheduling,
        "max_num_seqs": 16,
        "max_model_len": 128,
    }
    expected = tokens([llama.plain.answer(work) for work in works])
    assert tokens(run(llama.folder, works, **options).answers) == expected
    assert {num_tokens for _, num_tokens in told} == {2 * BLOCK, 3 * BLOCK}
    assert len({first_row for first_row, _ in told}) > 1
    told.clear()
    apart = run(llama.folder, works, **options, disable_cascade_attn=True)
    assert tokens(apart.answers) == expected
    assert not told


def tokens(answers):
    return [answer.sequences[0].token_ids for answer in answers]
