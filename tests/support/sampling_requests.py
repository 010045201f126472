"""Requests, rows and a small driver of SamplingState for tests."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import torch

from octavo.sampling.interface import SamplerOutput, SamplingRows
from octavo.sampling.sampler import Sampler
from octavo.sampling.state import SamplingState
from octavo.types.sampling_extras import ThinkingMarks
from octavo.types.sampling_params import SamplingParams
from octavo.types.scheduler_output import NewRequestData

CPU = torch.device("cpu")


@dataclass
class Sequence:
    """A request as the host knows it."""

    params: SamplingParams
    prompt: list[int]
    seed: int
    outputs: list[int] = field(default_factory=list)
    mu: float | None = None  # mirostat's, as the last step told it

    def as_new(self, slot: int) -> NewRequestData:
        return NewRequestData(
            slot=slot,
            request_id=str(slot),
            token_ids=self.prompt + self.outputs,
            num_prompt_tokens=len(self.prompt),
            num_computed_tokens=0,
            block_ids=[[]],
            sampling_params=self.params,
            seed=self.seed,
            mirostat_mu=self.mu,
        )


def make_state(vocab_size: int, num_slots: int = 64, **options) -> SamplingState:
    options.setdefault("max_model_len", 256)
    return SamplingState(num_slots, vocab_size, CPU, **options)


def make_rows(slots: list[int], positions: list[int]) -> SamplingRows:
    return SamplingRows(torch.tensor(slots), torch.tensor(positions), slots)


def draft_rows(drafts: list[tuple[int, int, list[int]]]) -> SamplingRows:
    """Rows of (slot, position, drafts): one for each draft and one more."""
    slots, positions, tokens, offsets = [], [], [], []
    for slot, position, ids in drafts:
        slots += [slot] * (len(ids) + 1)
        positions += range(position, position + len(ids) + 1)
        tokens += [-1, *ids]
        offsets += range(len(ids) + 1)
    return SamplingRows(
        torch.tensor(slots),
        torch.tensor(positions),
        slots,
        torch.tensor(tokens),
        torch.tensor(offsets),
        max(offsets),
    )


class Driver:
    """Runs steps of live sequences and appends their tokens on both sides."""

    def __init__(self, state: SamplingState) -> None:
        self.state = state
        self.live: dict[int, Sequence] = {}

    def add(self, slot: int, sequence: Sequence) -> None:
        self.live[slot] = sequence
        self.state.add(slot, sequence.as_new(slot))

    def preempt(self, slot: int, new_slot: int) -> None:
        """Leave the slot and come back in another, rebuilt from the tokens."""
        sequence = self.live.pop(slot)
        self.state.remove(slot)
        self.add(new_slot, sequence)

    def rows(self, slots: list[int]) -> SamplingRows:
        lengths = [len(self.live[s].prompt) + len(self.live[s].outputs) for s in slots]
        return make_rows(slots, lengths)

    def step(self, slots: list[int], logits: torch.Tensor) -> SamplerOutput:
        """Sample and commit; the host's sequences grow afterwards."""
        self.state.flush()
        rows = self.rows(slots)
        output = Sampler()(logits.clone(), rows, self.state)
        self.state.commit(rows, output.token_ids)
        for slot, token in zip(slots, output.token_ids.tolist(), strict=True):
            self.live[slot].outputs.append(token)
        for row, mu in mirostat_mus(output).items():
            self.live[slots[row]].mu = mu
        return output


def mirostat_mus(output: SamplerOutput) -> dict[int, float]:
    """Row -> mu after its token."""
    return {
        row: mu
        for part in output.mirostat_mu
        for row, mu in zip(part.rows, part.values.tolist(), strict=True)
    }


def random_params(rng: random.Random, vocab_size: int, *, rare: bool = False) -> SamplingParams:
    """Every parameter now and then; few distinct tokens, so that histories repeat.

    `rare`: those of rare_params too.
    """

    def some(share: float) -> bool:
        return rng.random() < share

    def ids(most: int, limit: int = vocab_size) -> list[int]:
        return [rng.randrange(limit) for _ in range(rng.randint(1, most))]

    return SamplingParams(
        temperature=rng.choice([0.0, 0.01, 0.3, 0.7, 1.0, 1.0, 1.0, 1.6]),
        top_k=rng.choice([0, 1, 2, 5, 20, 1000]) if some(0.4) else 0,
        top_p=rng.choice([0.01, 0.3, 0.8, 0.95, 0.999]) if some(0.4) else 1.0,
        min_p=rng.choice([0.01, 0.1, 0.5, 1.0]) if some(0.2) else 0.0,
        repetition_penalty=rng.choice([0.5, 1.1, 2.0]) if some(0.3) else 1.0,
        frequency_penalty=rng.choice([-2.0, 0.3, 1.5]) if some(0.3) else 0.0,
        presence_penalty=rng.choice([-1.0, 0.5, 2.0]) if some(0.3) else 0.0,
        min_tokens=rng.randint(0, 5) if some(0.3) else 0,
        stop_token_ids=ids(3, 6) if some(0.4) else None,
        eos_token_ids=ids(2, 6),
        ignore_eos=some(0.2),
        logit_bias={i: rng.uniform(-100, 100) for i in ids(6)} if some(0.2) else None,
        allowed_token_ids=ids(12) if some(0.15) else None,
        bad_words_token_ids=[ids(3, 5) for _ in range(rng.randint(1, 8))] if some(0.3) else None,
        logprobs=rng.choice([None, 0, 3]),
        max_tokens=100,
        **(rare_params(rng) if rare else {}),
    )


def rare_params(rng: random.Random) -> dict[str, Any]:
    """Parameters of the stages beyond top-k, top-p and min-p, a few at a time."""
    every: list[dict[str, Any]] = [
        {"typical_p": rng.choice([0.2, 0.63, 0.95])},
        {"top_n_sigma": rng.choice([-1.0, 0.37, 1.0, 2.5])},
        {"xtc_probability": rng.choice([0.0, 0.5, 1.0]), "xtc_threshold": rng.choice([0.03, 0.17])},
        {"dynatemp_range": rng.choice([0.3, 2.0]), "dynatemp_exponent": rng.choice([0.5, 1.0, 3])},
        {
            "mirostat_mode": rng.choice([1, 2, 2]),
            "mirostat_tau": rng.choice([0.4, 1.5, 3.0]),
            "mirostat_eta": rng.choice([0.0, 0.1, 0.9]),
        },
        {
            "dry_multiplier": rng.choice([0.8, 3.0]),
            "dry_base": rng.choice([1.0, 1.75]),
            "dry_allowed_length": rng.choice([0, 1, 2, 3]),
            "dry_penalty_last_n": rng.choice([-1, -1, 0, 4]),
            "dry_breaker_ids": rng.choice([None, None, [1], [0, 3]]),
        },
        {
            "thinking_token_budget": rng.choice([0, 1, 3]),
            "thinking_marks": ThinkingMarks(
                rng.choice([[], [[1]], [[2], [3, 4]]]),
                rng.choice([[[5]], [[6, 0, 7], [2]]]),
                rng.random() < 0.3,
            ),
        },
    ]
    chosen = rng.sample(every, rng.choice([0, 1, 1, 2, 7]))
    return {name: value for each in chosen for name, value in each.items()}
