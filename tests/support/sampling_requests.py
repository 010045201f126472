"""Requests, rows and a small driver of SamplingState for tests."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import torch

from octavo.sampling.interface import SamplerOutput, SamplingRows
from octavo.sampling.sampler import Sampler
from octavo.sampling.state import SamplingState
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
        return output


def random_params(rng: random.Random, vocab_size: int) -> SamplingParams:
    """Every parameter now and then; few distinct tokens, so that histories repeat."""

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
    )
