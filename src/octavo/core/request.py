"""Request: one sequence as the scheduler sees it, and its state machine."""

from __future__ import annotations

import enum
import time

from octavo.core.kv.coordinator import PrefixHit
from octavo.core.kv.sequence import KVSequence
from octavo.core.loops import LoopDetector
from octavo.types.engine_output import EngineCoreEvent, EventType, FinishReason
from octavo.types.request import EngineCoreRequest
from octavo.types.sampling_params import SamplingParams


class RequestStatus(enum.IntEnum):
    """WAITING -> RUNNING -> (PREEMPTED -> RUNNING)* -> FINISHED; any state may finish."""

    WAITING = 0
    RUNNING = 1
    PREEMPTED = 2
    FINISHED = 3


class Request(KVSequence):
    """The scheduler's record of one sequence.

    Accounting, all in tokens; see also KVSequence:
    - Below `prefill_end` (the tokens known when the slot was taken) input tokens come from the
      host; from there on a row's input is the token last sampled on the device.
    - `forced` are tokens from `num_computed_tokens` on that a grammar has left no choice about:
      the next rows take them from the host, at once. The first is what the row before samples;
      they join `token_ids` with it.
    - `max_computed` is where computing ends: the last token of a sequence is never an input,
      except that a prompt that is only scored (max_tokens == 0) is computed whole.

    `finish_reason` is set exactly when the request has finished.
    """

    __slots__ = (
        "arrival_index",
        "arrival_time",
        "blocks_wanted",
        "client_index",
        "draft_token_ids",
        "events",
        "finish_reason",
        "forced",
        "has_news",
        "last_step",
        "leader",
        "leader_blocks",
        "loops",
        "lora_request",
        "max_computed",
        "max_length",
        "max_tokens",
        "mirostat_mu",
        "num_bypasses",
        "num_cached_tokens",
        "num_preemptions",
        "num_prompt_logprobs",
        "num_prompt_tokens",
        "pooling_params",
        "prefill_end",
        "prefill_start",
        "prefix_hit",
        "priority",
        "request_id",
        "resends",
        "reserve_until",
        "reserved_blocks",
        "sampling_params",
        "seed",
        "slot",
        "status",
        "stop_ids",
        "stop_reason",
    )

    def __init__(self, new: EngineCoreRequest, *, arrival_index: int, max_model_len: int) -> None:
        """`arrival_index` is the order of arrival at this scheduler."""
        params = new.sampling_params
        lora = new.lora_request
        super().__init__(
            # A copy: the front end may live in this process and keep the list it sent.
            list(new.token_ids),
            lora_name=lora.lora_name if lora is not None else None,
            cache_salt=new.cache_salt,
            media=new.media,
            reads_prefix_cache=not (params.skip_reading_prefix_cache or _wants_prompt(params)),
        )
        self.request_id = new.request_id
        self.client_index = new.client_index
        self.priority = new.priority
        self.arrival_time = new.arrival_time
        self.arrival_index = arrival_index
        self.sampling_params = params
        self.pooling_params = new.pooling_params
        self.seed = new.seed
        self.lora_request = lora
        self.max_tokens = new.max_tokens
        self.num_prompt_tokens = new.num_prompt_tokens
        self.max_length = min(new.num_prompt_tokens + new.max_tokens, max_model_len)
        self.max_computed = self.max_length - (1 if new.max_tokens else 0)
        eos_ids = [] if params.ignore_eos else params.eos_token_ids or []
        self.stop_ids = frozenset((*eos_ids, *(params.stop_token_ids or ())))
        self.loops: LoopDetector | None = None
        repetition = params.repetition_detection
        if repetition is not None and repetition.max_pattern_size:
            self.loops = LoopDetector(repetition, self.token_ids[self.num_prompt_tokens :])
        self.mirostat_mu: float | None = None  # what the next token is truncated with

        self.status = RequestStatus.WAITING
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None
        self.slot = -1  # while RUNNING: the row of the device's request table
        self.last_step = -1  # the latest step with a row of this request
        self.prefill_start = 0  # tokens found in the cache when the slot was taken
        self.prefill_end = len(self.token_ids)
        self.forced: list[int] = []
        self.resends = False  # the workers are to be told of it anew with its next row
        self.draft_token_ids: list[int] = []  # host-known drafts for the next decode row
        self.num_preemptions = 0

        # While it waits: see core/admission.py and core/leaders.py.
        self.num_bypasses = 0  # later requests admitted while this one did not fit
        self.prefix_hit: PrefixHit | None = None  # of the latest look-up
        self.blocks_wanted = 0  # at the latest refused admission
        self.leader: Request | None = None  # is computing a prefix of this request right now
        self.leader_blocks = 0  # leading hash blocks shared with the leader
        self.reserve_until = 0  # tokens up to which blocks were set aside at admission
        self.reserved_blocks = 0  # of these, not yet allocated

        # News that leave with the next output.
        self.has_news = True
        self.num_cached_tokens: int | None = None  # of the prompt, found at the first admission
        self.events: list[EngineCoreEvent] | None = None
        self.num_prompt_logprobs = 0  # prompt positions already reported

    @property
    def num_output_tokens(self) -> int:
        """Known tokens after the prompt."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def protected(self) -> bool:
        """Whether preemption spares it: resumed, and not yet past the room set aside for it."""
        return self.num_preemptions > 0 and self.num_computed_tokens <= self.reserve_until

    @property
    def priority_key(self) -> tuple[int, float, int]:
        """Order of service under the priority policy: smaller first, never equal."""
        return (self.priority, self.arrival_time, self.arrival_index)

    def start(self, slot: int, num_computed_tokens: int) -> None:
        """WAITING or PREEMPTED -> RUNNING, with its first tokens found in the cache."""
        self.status = RequestStatus.RUNNING
        self.slot = slot
        self.num_computed_tokens = num_computed_tokens
        self.prefill_start = num_computed_tokens
        self.prefill_end = len(self.token_ids)
        self.num_bypasses = 0
        self.leader = None

    def rewind(self) -> None:
        """What was sampled after the known tokens is dropped; the last of them is computed anew."""
        self.num_computed_tokens = len(self.token_ids) - 1
        self.prefill_start = self.num_computed_tokens
        self.prefill_end = len(self.token_ids)
        self.forced = []
        self.draft_token_ids = []
        self.resends = True

    def preempt(self) -> None:
        """RUNNING -> PREEMPTED: everything is to be computed again."""
        self.status = RequestStatus.PREEMPTED
        self.slot = -1
        self.num_computed_tokens = 0
        self.forced = []
        self.resends = False
        self.draft_token_ids = []
        self.num_preemptions += 1

    def finish(self, reason: FinishReason, stop_reason: int | str | None = None) -> None:
        """Any state -> FINISHED."""
        self.status = RequestStatus.FINISHED
        self.finish_reason = reason
        self.stop_reason = stop_reason
        self.leader = None

    def record(self, event: EventType) -> None:
        """Note an event; it leaves with the next output."""
        if self.events is None:
            self.events = []
        self.events.append(EngineCoreEvent(event, time.monotonic()))
        self.has_news = True


def _wants_prompt(params: SamplingParams) -> bool:
    """Whether something of every prompt position is wanted, so that each must be computed."""
    states = params.hidden_states
    wants_states = states is not None and states.positions in ("prompt", "all")
    return wants_states or params.prompt_logprobs is not None
