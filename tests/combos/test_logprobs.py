"""Logprobs of the whole vocabulary through LLM: log_softmax of transformers' logits."""

import pytest
import torch

from combos.answers import LOGPROB_TOLERANCE, Position
from combos.requests import Work, greedy, ids, seeded
from combos.runs import Mix, serve, start
from octavo.sampling.logprob_tensors import LOGPROB_FLOOR
from octavo.types.sampling_params import SamplingParams
from support.sampling_oracle import sample_row


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


@pytest.mark.parametrize(
    ("name", "chunk", "few_blocks"),
    [("llama", 16, True), ("llama", 256, False), ("qwen3", 16, False)],
)
def test_whole_vocabulary(family, name, chunk, few_blocks):
    plain = family(name).plain
    everything = {"logprobs": -1, "prompt_logprobs": -1}
    works = [
        *(Work(f"{n} tokens", ids(n, n), greedy(30, **everything)) for n in (1, 16, 70)),
        *(Work(f"drawn {i}", ids(20, i), seeded(i, 36, **everything)) for i in range(7)),
        Work("scored", ids(128, 3), greedy(0, prompt_logprobs=-1)),
    ]
    llm = start(family(name).folder, max_logprobs=-1, **Mix(chunk, True, few_blocks).options(12))
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


MODES = {
    "raw_logits": lambda raw, processed: raw,
    "processed_logits": lambda raw, processed: processed,
    "processed_logprobs": lambda raw, processed: processed.log_softmax(dim=-1),
}


@pytest.mark.parametrize("mode", MODES)
def test_other_modes(family, mode):
    """Logits or logprobs, as the model gave them or as they were drawn from."""
    plain = family("llama").plain
    shapes = [
        {"temperature": 0.0, "repetition_penalty": 1.5, "logit_bias": {9: 3.0}},
        {"seed": 5, "temperature": 0.7, "top_k": 12, "allowed_token_ids": list(range(50, 200))},
        {"seed": 6, "presence_penalty": 1.0, "min_p": 0.02},
    ]
    works = [
        Work(f"{i}", ids(20, i), SamplingParams(max_tokens=12, logprobs=-1, **shape))
        for i, shape in enumerate(shapes)
    ]
    options = Mix().options() | {"max_logprobs": -1, "logprobs_mode": mode}
    llm = start(family("llama").folder, **options)
    answers = serve(llm, works).answers
    llm.shutdown()
    for work, answer in zip(works, answers, strict=True):
        (made,) = answer.sequences
        assert len(made.token_ids) == 12
        for at, position in enumerate(made.logprobs):
            raw = plain.logits(plain.prompt_ids(work) + made.token_ids[:at])
            seed = work.params.seed or 0
            row = sample_row(raw, work.params, plain.prompt_ids(work), made.token_ids[:at], seed)
            expected = MODES[mode](torch.from_numpy(raw), torch.from_numpy(row.processed))
            values = torch.tensor([position[token][0] for token in range(len(expected))])
            expected = expected.clamp(min=LOGPROB_FLOOR)
            assert (values - expected).abs().max().item() <= LOGPROB_TOLERANCE
