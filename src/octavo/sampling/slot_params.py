"""SlotParams: temperature, top-p, top-k, min-p, seed and prompt length of every slot."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from octavo.sampling.staging import Staging
from octavo.types.sampling_params import SamplingParams
from octavo.types.scheduler_output import NewRequestData

# The likeliest tokens among which a top-p nucleus is looked for first.
NUCLEUS_CANDIDATES = 256

_WORDS = 7


def is_greedy(params: SamplingParams) -> bool:
    """Whether every token is the argmax: at temperature 0, and when top-k leaves one token."""
    return params.greedy or params.top_k == 1


class SlotParams:
    """One row of seven 32-bit words per slot, and who needs which stage of sampling.

    The mappings (slot -> slot) are the sampler's row filters.
    """

    def __init__(self, num_slots: int, vocab_size: int, staging: Staging) -> None:
        table = torch.zeros(num_slots, _WORDS, dtype=torch.int32, device=staging.device)
        floats = table.view(torch.float32)
        # [num_slots] each, views of one table.
        floats[:, 0] = 1.0  # slots that never held a request can be divided by
        self.temperature, self.top_p, self.min_p = floats[:, :3].unbind(dim=1)
        self.top_k, self.seed_low, self.seed_high, self.prompt_len = table[:, 3:].unbind(dim=1)
        self.users: dict[int, int] = {}
        self.random: dict[int, int] = {}
        self.whole_softmax: dict[int, int] = {}  # random without top-k and top-p
        self.truncated: dict[int, int] = {}  # random with top-k or top-p
        self.min_p_users: dict[int, int] = {}
        self.logprobs: dict[int, int] = {}  # slot -> how many top ones, >= 0
        self.all_logprobs: dict[int, int] = {}  # slots that want the whole vocabulary
        self._table = table
        self._vocab_size = vocab_size
        self._staging = staging
        self._candidates: dict[int, int] = {}
        self._changed: dict[int, npt.NDArray[np.int32]] = {}

    @property
    def active(self) -> int:
        """Slots in use: each has parameters."""
        return len(self.users)

    def add(self, slot: int, new: NewRequestData) -> None:
        """Note a request's parameters."""
        params = new.sampling_params
        top_k = min(params.top_k, self._vocab_size) or self._vocab_size
        greedy = is_greedy(params)
        words = np.empty(_WORDS, np.int32)
        temperature = 1.0 if greedy else params.temperature
        words[:3].view(np.float32)[:] = (temperature, params.top_p, params.min_p)
        seed = new.seed & 0xFFFFFFFFFFFFFFFF
        words[3:].view(np.uint32)[:] = (top_k, seed & 0xFFFFFFFF, seed >> 32, new.num_prompt_tokens)
        self._changed[slot] = words
        self.users[slot] = slot
        if not greedy:
            self._add_random(slot, top_k, params.top_p, params.min_p)
        if params.logprobs == -1:
            self.all_logprobs[slot] = self._vocab_size
        elif params.logprobs is not None:
            self.logprobs[slot] = min(params.logprobs, self._vocab_size)

    def remove(self, slot: int) -> None:
        """Forget the slot."""
        for members in (
            self.users,
            self.random,
            self.whole_softmax,
            self.truncated,
            self.min_p_users,
            self.logprobs,
            self.all_logprobs,
            self._candidates,
        ):
            members.pop(slot, None)
        self._changed.pop(slot, None)

    def flush(self) -> None:
        """Stage the rows of the slots added since the last flush."""
        if not self._changed:
            return
        slots = np.fromiter(self._changed, np.int32)
        block = np.concatenate([slots, *self._changed.values()])
        self._changed.clear()

        def write(part: Tensor) -> None:
            words = part[len(slots) :].view(len(slots), _WORDS)
            self._table.index_copy_(0, part[: len(slots)].to(torch.int64), words)

        self._staging.put(block, write)

    def num_candidates(self, slots: list[int]) -> int:
        """Tokens to look at first when truncating rows of these slots, all of them users."""
        return max(self._candidates[slot] for slot in slots)

    def _add_random(self, slot: int, top_k: int, top_p: float, min_p: float) -> None:
        self.random[slot] = slot
        if min_p > 0.0:
            self.min_p_users[slot] = slot
        if top_k == self._vocab_size and top_p == 1.0:
            self.whole_softmax[slot] = slot
            return
        self.truncated[slot] = slot
        if self._staging.device.type != "cpu":
            # Only the whole vocabulary spares the device from being asked whether it was enough.
            self._candidates[slot] = self._vocab_size
        else:
            # One token more than top-k: that it falls behind shows that there are no more.
            wanted = top_k + 1 if top_k < self._vocab_size else NUCLEUS_CANDIDATES
            self._candidates[slot] = min(wanted, self._vocab_size)
