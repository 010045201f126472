"""Logprobs of the whole vocabulary through LLM: log_softmax of transformers' logits."""

import pytest
import torch

from combos.answers import LOGPROB_TOLERANCE, Position
from combos.requests import Work, greedy, ids, seeded
from combos.runs import Mix, serve, start


def check(positions: list[Position], logits: torch.Tensor, tokens: list[int]) -> None:
    """positions[i]: of tokens[i] and the whole vocabulary, as logits[i] say."""
    assert len(positions) == len(tokens)
    scores = logits.log_softmax(dim=-1)
    for position, row, token in zip(positions, scores, tokens, strict=False):
        assert next(iter(position)) == token, "the token itself comes first"
        assert len(position) == len(row)
        values = torch.tensor([position[t][0] for t in range(len(row))])
        assert (values - row).abs().max().item() <= LOGPROB_TOLERANCE
        by_rank = sorted(position, key=lambda t: position[t][1])
        ranked = values[by_rank]
        assert (ranked[:-1] >= ranked[1:]).all()
        assert sorted(rank for _, rank in position.values()) == list(range(1, len(row) + 1))


@pytest.mark.parametrize("few_blocks", [False, True])
@pytest.mark.parametrize("chunk", [16, 256])
@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_whole_vocabulary(family, name, chunk, few_blocks):
    plain = family(name).plain
    everything = {"logprobs": -1, "prompt_logprobs": -1}
    works = [
        *(Work(f"{n} tokens", ids(n, n), greedy(30, **everything)) for n in (1, 16, 70)),
        *(Work(f"drawn {i}", ids(20, i), seeded(i, 36, **everything)) for i in range(7)),
        Work("scored", ids(128, 3), greedy(0, prompt_logprobs=-1)),
    ]
    llm = start(family(name).folder, max_logprobs=-1, **Mix(chunk, True, few_blocks).options())
    run = serve(llm, works)
    llm.shutdown()
    assert (run.num_preemptions > 0) == few_blocks
    for work, answer in zip(works, run.answers, strict=True):
        (made,) = answer.sequences
        prompt = plain.prompt_ids(work)
        logits = plain.all_logits(prompt + made.token_ids)
        assert answer.prompt_logprobs[0] is None
        check(answer.prompt_logprobs[1:], logits, (prompt + made.token_ids)[1 : len(prompt)])
        if made.logprobs is not None:
            check(made.logprobs, logits[len(prompt) - 1 : -1], made.token_ids)
