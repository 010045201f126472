"""SlotParams: temperature, top-p, top-k, min-p, seed, prompt length and kind of every slot."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from octavo.kernels.slot_tables import NUM_WORDS, Kind, Word
from octavo.sampling.staging import Staging
from octavo.types.sampling_params import SamplingParams
from octavo.types.scheduler_output import NewRequestData

# The likeliest tokens among which a top-p nucleus is looked for first.
NUCLEUS_CANDIDATES = 256

_64_BITS = 0xFFFFFFFFFFFFFFFF


def is_greedy(params: SamplingParams) -> bool:
    """Whether every token is the argmax: at temperature 0, and when top-k leaves one token."""
    return params.greedy or params.top_k == 1


class SlotParams:
    """A row of 32-bit words per slot (octavo.kernels.slot_tables), and who needs which stage.

    The mappings (slot -> slot) are the sampler's row filters.
    """

    def __init__(self, num_slots: int, vocab_size: int, staging: Staging) -> None:
        # [num_slots, NUM_WORDS] int32; of slots that never held a request, greedy.
        self.table = torch.zeros(num_slots, NUM_WORDS, dtype=torch.int32, device=staging.device)
        floats = self.table.view(torch.float32)
        # [num_slots] each, views of the table.
        self.temperature = floats[:, Word.TEMPERATURE].fill_(1.0)
        self.top_p = floats[:, Word.TOP_P]
        self.log_min_p = floats[:, Word.LOG_MIN_P]
        self.top_k = self.table[:, Word.TOP_K]
        self.seed_low = self.table[:, Word.SEED_LOW]
        self.seed_high = self.table[:, Word.SEED_HIGH]
        self.prompt_len = self.table[:, Word.PROMPT_LEN]
        self.users: dict[int, int] = {}
        self.random: dict[int, int] = {}
        self.whole_softmax: dict[int, int] = {}  # random without top-k and top-p
        self.truncated: dict[int, int] = {}  # random with top-k or top-p
        self.min_p_users: dict[int, int] = {}
        self.logprobs: dict[int, int] = {}  # slot -> how many top ones, >= 0
        self.all_logprobs: dict[int, int] = {}  # slots that want the whole vocabulary
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
        words = np.empty(NUM_WORDS, np.int32)
        floats = words.view(np.float32)
        # A dynamic temperature is a stage of its own (octavo.sampling.shapers).
        fixed = not greedy and params.dynatemp_range == 0.0
        floats[Word.TEMPERATURE] = params.temperature if fixed else 1.0
        floats[Word.TOP_P] = params.top_p
        floats[Word.LOG_MIN_P] = np.log(np.float32(params.min_p)) if params.min_p else -np.inf
        words[Word.TOP_K] = top_k
        words[Word.SEED_LOW : Word.SEED_HIGH + 1] = np.array([new.seed & _64_BITS], np.uint64).view(
            np.int32
        )
        words[Word.PROMPT_LEN] = new.num_prompt_tokens
        self.users[slot] = slot
        kind = Kind.GREEDY
        if not greedy:
            kind = self._add_random(slot, top_k, params.top_p, params.min_p)
        words[Word.KIND] = kind
        self._changed[slot] = words
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
            words = part[len(slots) :].view(len(slots), NUM_WORDS)
            self.table.index_copy_(0, part[: len(slots)].to(torch.int64), words)

        self._staging.put(block, write)

    def num_candidates(self, slots: list[int]) -> int:
        """Tokens to look at first when truncating rows of these slots, all of them users."""
        return max(self._candidates[slot] for slot in slots)

    def _add_random(self, slot: int, top_k: int, top_p: float, min_p: float) -> Kind:
        self.random[slot] = slot
        if min_p > 0.0:
            self.min_p_users[slot] = slot
        if top_k == self._vocab_size and top_p == 1.0:
            self.whole_softmax[slot] = slot
            return Kind.TRUNCATED if min_p > 0.0 else Kind.WHOLE
        self.truncated[slot] = slot
        # One token more than top-k: that it falls behind shows that there are no more.
        wanted = top_k + 1 if top_k < self._vocab_size else NUCLEUS_CANDIDATES
        self._candidates[slot] = min(wanted, self._vocab_size)
        return Kind.TRUNCATED
