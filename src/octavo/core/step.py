"""Step: the rows of one step, while it is being built and until its results are applied."""

from __future__ import annotations

from octavo.core.request import Request
from octavo.core.shared_prefixes import Arrangement
from octavo.types.scheduler_output import (
    NewBlocks,
    NewRequestData,
    SchedulerOutput,
    SharedPrefix,
)


class Step:
    """Parallel lists, one entry per row: decode rows first, then prefill rows."""

    __slots__ = (
        "admitted",
        "budget",
        "drafts",
        "forced",
        "long_prefill",
        "num_computed_tokens",
        "num_decode_rows",
        "num_scheduled_tokens",
        "partial",
        "released_slots",
        "requests",
        "samples",
        "shared_prefixes",
        "slots",
        "step_id",
        "tails",
    )

    def __init__(self, step_id: int, budget: int) -> None:
        """`budget` is in tokens."""
        self.step_id = step_id
        self.budget = budget  # what is left of it
        self.requests: list[Request | None] = []  # None: the row's results are to be dropped
        self.slots: list[int] = []
        self.num_computed_tokens: list[int] = []
        self.num_scheduled_tokens: list[int] = []
        self.samples: list[bool] = []
        self.num_decode_rows = 0
        self.drafts: list[list[int]] = []  # of decode rows; empty without speculation
        # By slot, because decode rows change their places.
        self.forced: dict[int, list[int]] = {}  # input tokens of decode rows that the host knows
        self.partial: set[int] = set()  # decode rows that end before the last of their tokens
        self.tails: dict[int, list[int]] = {}  # what a row samples for certain, and what follows
        self.shared_prefixes: list[SharedPrefix] = []  # of decode rows
        self.admitted: list[Request] = []  # requests that take their slot with this step
        self.long_prefill: Request | None = None  # got only a share of the budget
        self.released_slots: list[int] = []  # slots of gone requests that this step still uses

    def add_prefill(self, request: Request, num_tokens: int, *, samples: bool) -> None:
        """Add a row of tokens known to the host, and count them as computed."""
        self.requests.append(request)
        self.slots.append(request.slot)
        self.num_computed_tokens.append(request.num_computed_tokens)
        self.num_scheduled_tokens.append(num_tokens)
        self.samples.append(samples)
        self.budget -= num_tokens
        request.num_computed_tokens += num_tokens
        request.last_step = self.step_id

    def arrange_decodes(self, arrangement: Arrangement) -> None:
        """Order the decode rows, before there are others, so that groups are ranges of rows."""
        self.shared_prefixes = arrangement.prefixes
        order = arrangement.order
        if order is None:
            return
        self.requests = [self.requests[row] for row in order]
        self.slots = [self.slots[row] for row in order]
        self.num_computed_tokens = [self.num_computed_tokens[row] for row in order]
        self.num_scheduled_tokens = [self.num_scheduled_tokens[row] for row in order]
        if self.drafts:
            self.drafts = [self.drafts[row] for row in order]

    def take_back_decode(self, request: Request) -> None:
        """Remove the decode row of a request, if it has one, and its tokens from the budget."""
        if request not in self.requests:
            return
        row = self.requests.index(request)
        self.budget += self.num_scheduled_tokens[row]
        lists = (self.requests, self.slots, self.num_computed_tokens, self.num_scheduled_tokens)
        for rows in (*lists, self.drafts):
            del rows[row : row + 1]
        self.forced.pop(request.slot, None)
        self.partial.discard(request.slot)

    def drop(self, request: Request) -> bool:
        """Ignore the results of a request's row; returns whether there is one."""
        if request not in self.requests:
            return False
        self.requests[self.requests.index(request)] = None
        return True

    def to_output(self, freed_slots: list[int], new_blocks: list[NewBlocks]) -> SchedulerOutput:
        """The step as the workers see it."""
        admitted = {request.slot for request in self.admitted}
        return SchedulerOutput(
            step_id=self.step_id,
            new_requests=[_new_request_data(request) for request in self.admitted],
            freed_slots=freed_slots,
            slots=self.slots,
            num_computed_tokens=self.num_computed_tokens,
            num_scheduled_tokens=self.num_scheduled_tokens,
            samples=self.samples,
            num_decode_rows=self.num_decode_rows,
            # The tables of new requests are sent whole.
            new_blocks=[blocks for blocks in new_blocks if blocks.slot not in admitted],
            draft_token_ids={row: drafts for row, drafts in enumerate(self.drafts) if drafts},
            shared_prefixes=self.shared_prefixes,
            total_num_scheduled_tokens=sum(self.num_scheduled_tokens),
            forced_token_ids=self._forced_rows() if self.forced else {},
        )

    def _forced_rows(self) -> dict[int, list[int]]:
        decodes = enumerate(self.slots[: self.num_decode_rows])
        return {row: self.forced[slot] for row, slot in decodes if slot in self.forced}


def _new_request_data(request: Request) -> NewRequestData:
    """A snapshot: the request's own lists go on growing."""
    return NewRequestData(
        slot=request.slot,
        request_id=request.request_id,
        token_ids=request.token_ids.copy(),
        num_prompt_tokens=request.num_prompt_tokens,
        num_computed_tokens=request.prefill_start,
        block_ids=[table.copy() for table in request.block_ids],
        sampling_params=request.sampling_params,
        seed=request.seed,
        lora_request=request.lora_request,
        pooling_params=request.pooling_params,
        mirostat_mu=request.mirostat_mu,
    )
