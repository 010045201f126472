"""Scheduler: which requests compute how many tokens in the next step."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence

from octavo.core.admission import DEFER, KVBlocks, Resource, ResourceChain
from octavo.core.counters import SchedulerCounters
from octavo.core.kv.manager import KVCacheManager
from octavo.core.kv.planning import check_fits
from octavo.core.leaders import PrefixLeaders
from octavo.core.limits import SchedulerLimits
from octavo.core.pacing import Pacer, Unpaced
from octavo.core.request import Request, RequestStatus
from octavo.core.request_queue import POLICIES, RequestQueue, Verdict
from octavo.core.shared_prefixes import SharedPrefixes
from octavo.core.slots import SlotPool
from octavo.core.step import Step
from octavo.core.update import ResultApplier
from octavo.types.engine_output import EngineCoreOutputs, EventType, FinishReason
from octavo.types.errors import ConfigError, RequestError
from octavo.types.kv_spec import KVCacheConfig
from octavo.types.request import EngineCoreRequest, FinishRequest
from octavo.types.runner_output import ModelRunnerOutput
from octavo.types.scheduler_output import DEVICE_DRAFT, SchedulerOutput
from octavo.types.stats import SchedulerStats


class Scheduler:
    """One token budget per step for everything; steps are built ahead of results.

    `schedule()` serves, in this order:
    1. decode rows: every running request whose known tokens are computed. One that finds no
       block preempts the last request in the order of service (perhaps itself): the victim's
       blocks are freed, it is computed anew later, and what steps in flight produce for it is
       dropped. A victim that already has a row in this step gives it back.
    2. parts of running prefills.
    3. waiting requests, unless somebody was preempted.

    Admission goes in queue order (`RequestQueue.serve`). A request whose next prefix block another
    prefill computes in this step waits for it (`PrefixLeaders`). A prefill that can't be finished
    with what is left of the budget ("long") takes half of it, and in the end whatever the
    requests behind it did not use; while it is under way, only prefills that fit the rest of a
    step are admitted. So a short prompt waits a step or two behind a long one, and long prompts
    are computed one after the other. In a step with decode rows the budget for prefills is what the
    pacer allows, if that is less.

    Results may be outstanding: `schedule()` can be called up to `max_concurrent_steps` times
    before the oldest step's `update_from_output()`. A decode row is scheduled without knowing its
    input token, as long as the tokens in flight can't have reached the length limit.

    Where a grammar leaves no choice (`force`), a decode row takes several tokens at once.
    """

    def __init__(
        self,
        *,
        max_num_batched_tokens: int,
        max_num_seqs: int,
        num_slots: int,
        max_model_len: int,
        kv_cache_config: KVCacheConfig,
        max_concurrent_steps: int = 1,
        policy: str = "fcfs",
        long_prefill_token_threshold: int = 0,
        enable_chunked_prefill: bool = True,
        enable_prefix_caching: bool = True,
        hash_algo: str = "sha256",
        model_hash_key: str = "",
        num_speculative_tokens: int = 0,
        vocab_size: int | None = None,
        resources: Sequence[Resource] = (),
        share_prefixes: bool = True,
        pacer: Pacer | None = None,
        log_stats: bool = True,
    ) -> None:
        """Sizes are in tokens, `max_num_seqs` in requests.

        `num_slots`: rows of the device's request table; requests that have finished keep theirs
        until no step in flight has it, so twice `max_num_seqs` avoids waiting for one.
        `long_prefill_token_threshold`: most tokens of one prefill per step; 0: no limit.
        `model_hash_key`: see BlockHasher. `vocab_size`: sampled ids outside it fail the request;
        None: any 32-bit id will do. `num_speculative_tokens`: drafts per decode row; while a step
        of the request is in flight they are drafts that the device makes (ids DEVICE_DRAFT),
        otherwise those of ModelRunnerOutput.draft_token_ids. `resources`: what requests need
        besides KV blocks, asked in this order. `share_prefixes`: name decode rows that begin with
        the same blocks in `SchedulerOutput.shared_prefixes`. `pacer`: limits the prompt tokens
        of steps with decode rows; None: nothing does.

        Raises ConfigError if a value is out of range or `max_model_len` does not fit the cache.
        """
        if policy not in POLICIES:
            raise ConfigError(
                f"scheduling_policy={policy!r} is unknown; choose one of {sorted(POLICIES)}"
            )
        limits = SchedulerLimits(
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=max_num_seqs,
            num_slots=num_slots,
            max_model_len=max_model_len,
            max_concurrent_steps=max_concurrent_steps,
            long_prefill_token_threshold=long_prefill_token_threshold,
            enable_chunked_prefill=enable_chunked_prefill,
            num_speculative_tokens=num_speculative_tokens,
        )
        ahead = limits.max_tokens_ahead
        check_fits(kv_cache_config, max_model_len=max_model_len, max_tokens_ahead=ahead)
        self._limits = limits
        self._num_speculative_tokens = num_speculative_tokens
        self._log_stats = log_stats

        self._kv = KVCacheManager(
            kv_cache_config,
            enable_prefix_caching=enable_prefix_caching,
            hash_algo=hash_algo,
            model_hash_key=model_hash_key,
            max_tokens_ahead=ahead,
        )
        self._blocks = KVBlocks(
            self._kv, max_model_len=max_model_len, num_lookahead_tokens=num_speculative_tokens
        )
        self._chain = ResourceChain([self._blocks, *resources])
        self._leaders = PrefixLeaders(self._kv)
        self._prefixes = SharedPrefixes(kv_cache_config, enabled=share_prefixes)
        self._pacer: Pacer = pacer or Unpaced()
        self._slots = SlotPool(num_slots)
        self._counters = SchedulerCounters()
        self._results = ResultApplier(self._kv, self._counters, vocab_size)

        self._requests: dict[str, Request] = {}  # unfinished
        self._grammar_slots: set[int] = set()  # of running requests with a grammar
        self._waiting = RequestQueue(policy)
        self._running: list[Request] = []  # in order of admission
        self._in_flight: deque[Step] = deque()  # consecutive step ids
        self._next_step_id = 0
        self._num_arrivals = 0

    # Requests come and go.

    def add_request(self, new: EngineCoreRequest) -> None:
        """Queue a request.

        Raises RequestError if it could never run: the caller reports it and goes on.
        """
        if new.request_id in self._requests:
            raise RequestError(
                f"request {new.request_id} exists already; choose another request_id", "request_id"
            )
        self._limits.check(new)
        request = Request(
            new, arrival_index=self._num_arrivals, max_model_len=self._limits.max_model_len
        )
        try:
            self._kv.prepare(request)
        except OverflowError as error:
            raise RequestError(
                f"request {new.request_id}: a token id is outside 0..2**32-1", "prompt"
            ) from error
        self._num_arrivals += 1
        if self._log_stats:
            request.record(EventType.QUEUED)
        self._requests[request.request_id] = request
        self._waiting.add(request)

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        """End requests at once; nothing more is emitted for them. Unknown ids are ignored."""
        for request_id in request_ids:
            self._finish(request_id, FinishReason.ABORT)

    def finish_request(self, finish: FinishRequest) -> None:
        """End a request as the front end decided; nothing more is emitted for it.

        Tokens after the first `num_output_tokens` are dropped. An unknown id is ignored: the
        request may have ended by itself.
        """
        request = self._requests.get(finish.request_id)
        if request is not None and finish.num_output_tokens is not None:
            del request.token_ids[request.num_prompt_tokens + finish.num_output_tokens :]
        self._finish(finish.request_id, finish.reason)

    # A step.

    def schedule(self) -> SchedulerOutput:
        """The next step; its rows are empty if there is nothing to compute now.

        An empty step is not sent to the workers and gets no update_from_output().
        """
        step = Step(self._next_step_id, self._limits.max_num_batched_tokens)
        if len(self._in_flight) == self._limits.max_concurrent_steps:
            return SchedulerOutput(step.step_id)
        num_preemptions = self._counters.num_preemptions
        self._leaders.start_step()
        prefills = self._schedule_decodes(step)
        if step.num_decode_rows:
            step.arrange_decodes(self._prefixes.arrange(step.slots, step.num_scheduled_tokens))
            step.samples = [slot not in step.partial for slot in step.slots]
            step.budget = min(step.budget, self._pacer.limit(sum(step.num_scheduled_tokens)))
        self._schedule_prefills(step, prefills)
        if self._counters.num_preemptions == num_preemptions:
            self._waiting.serve(lambda request: self._try_to_admit(request, step))
        self._extend_long_prefill(step)
        return self._launch(step) if step.requests else SchedulerOutput(step.step_id)

    def update_from_output(
        self, scheduler_output: SchedulerOutput, result: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Apply the results of the oldest step in flight; returns the news by client index.

        Raises RuntimeError if the results are not those of that step: the request table of the
        device and this one no longer agree.
        """
        if not scheduler_output.slots:
            return {}
        if not self._in_flight or not (
            self._in_flight[0].step_id == scheduler_output.step_id == result.step_id
        ):
            expected = self._in_flight[0].step_id if self._in_flight else None
            raise RuntimeError(
                f"results of step {result.step_id} for step {scheduler_output.step_id}, "
                f"but the oldest step in flight is {expected}"
            )
        step = self._in_flight.popleft()
        self._pacer.finished()
        outputs, finished = self._results.apply(step, result)
        for slot in step.released_slots:
            self._slots.free(slot)
        if finished:
            for request in finished:
                self._leave(request)
            self._running = [r for r in self._running if r.finish_reason is None]
        now = time.monotonic()
        return {
            client: EngineCoreOutputs(outputs=news, timestamp=now)
            for client, news in outputs.items()
        }

    def force(self, scheduler_output: SchedulerOutput, row: int, tokens: list[int]) -> None:
        """A row of a step in flight will sample tokens[0], for certain, and all others follow.

        They count as produced when the step's results are applied, and are computed by the next
        rows of the request, of as many tokens as fit. No later step may have been scheduled.
        """
        request = self.requests_of(scheduler_output)[row]
        if request is None or request.finish_reason is not None:
            return
        step = self._in_flight[scheduler_output.step_id - self._in_flight[0].step_id]
        step.tails[request.slot] = tokens
        request.forced = tokens.copy()
        self._counters.num_forced_tokens += len(tokens) - 1

    def retry(self, scheduler_output: SchedulerOutput, row: int, result: ModelRunnerOutput) -> None:
        """Have a row of the oldest step sampled again, by a step to come.

        Its results have come and are not applied yet: the token is taken out of them. What later
        steps in flight make of the token will be dropped.
        """
        request = self.requests_of(scheduler_output)[row]
        if request is None or request.finish_reason is not None or row in result.errors:
            return
        step, *later = self._in_flight
        step.samples[row] = False
        step.tails.pop(request.slot, None)
        result.sampled_token_ids[row] = []
        result.logprobs.pop(row, None)
        result.mirostat_mu.pop(row, None)
        for other in later:
            other.drop(request)
        self._prefixes.remove(request.slot)
        request.rewind()

    # What others want to know.

    @property
    def num_running(self) -> int:
        """Requests that hold a slot and are not finished."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Requests in the queue; limiting it is the front end's business."""
        return len(self._waiting)

    @property
    def prefix_hit_granularity(self) -> int:
        """The shortest prefix that can be reused, in tokens; 0 with prefix caching off."""
        return self._kv.hit_granularity

    def get_request_counts(self) -> tuple[int, int]:
        """(running, waiting)."""
        return len(self._running), len(self._waiting)

    def requests_of(self, scheduler_output: SchedulerOutput) -> Sequence[Request | None]:
        """The requests of a step in flight, row by row; None: the row's results will be dropped."""
        index = scheduler_output.step_id - self._in_flight[0].step_id
        return self._in_flight[index].requests

    def has_unfinished_requests(self) -> bool:
        """Whether any request is waiting or running."""
        return bool(self._requests)

    def has_requests(self) -> bool:
        """Whether there is anything to do: unfinished requests or results outstanding."""
        return bool(self._requests or self._in_flight)

    def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache; False, with nothing done, while a request is running."""
        return self._kv.reset_prefix_cache()

    def make_stats(self) -> SchedulerStats | None:
        """State now and counts since the last call; None with log_stats off."""
        if not self._log_stats:
            return None
        return self._counters.report(
            num_running=len(self._running),
            num_waiting=len(self._waiting),
            kv_cache_usage=self._kv.usage,
            step=self._next_step_id,
            has_prefix_cache=self._kv.hit_granularity > 0,
        )

    # Running requests.

    def _schedule_decodes(self, step: Step) -> list[Request]:
        """Give every decode its row; returns the requests whose known tokens aren't computed."""
        step_id = step.step_id
        speculates = self._num_speculative_tokens > 0
        lookahead = self._num_speculative_tokens
        prefills = []
        num_tokens = 1
        behind = len(self._running) * (1 + lookahead)  # tokens kept for rows not yet served
        for request in tuple(self._running):  # preemption changes the list
            behind -= 1 + lookahead
            computed = request.num_computed_tokens
            if computed < request.prefill_end:
                prefills.append(request)
                continue
            room = request.max_computed - computed
            if room <= 0:
                continue  # the tokens in flight may be the last
            if speculates:
                drafts = self._drafts(request, min(room, step.budget) - 1)
                num_tokens = 1 + len(drafts)
            if request.forced:
                if len(request.forced) > room:
                    continue  # they are the last
                drafts = []
                num_tokens = self._take_forced(request, step.budget - behind, step)
            elif not speculates:
                num_tokens = 1
            end = computed + num_tokens
            if end + lookahead > request.num_allocated_tokens and not self._grow(
                request, num_tokens, step
            ):
                continue
            if speculates:
                step.drafts.append(drafts)
            step.requests.append(request)
            step.slots.append(request.slot)
            step.num_computed_tokens.append(computed)
            step.num_scheduled_tokens.append(num_tokens)
            request.num_computed_tokens = end
            request.last_step = step_id
            step.budget -= num_tokens
        step.num_decode_rows = len(step.requests)
        return prefills

    def _take_forced(self, request: Request, most: int, step: Step) -> int:
        """Give a decode row up to `most` of the tokens that must come; returns their number."""
        most = min(most, self._limits.max_forced_row)
        tokens, request.forced = request.forced[:most], request.forced[most:]
        step.forced[request.slot] = tokens
        if request.forced:
            step.partial.add(request.slot)
        return len(tokens)

    def _drafts(self, request: Request, limit: int) -> list[int]:
        """The drafts of a decode row: on the device while its input token is only known there."""
        count = min(self._num_speculative_tokens, limit)
        if self._is_in_flight(request):
            return [DEVICE_DRAFT] * count
        return request.draft_token_ids[:count]

    def _grow(self, request: Request, num_tokens: int, step: Step) -> bool:
        """Find blocks for a decode row, by preemption if need be; False: it was the victim."""
        while self._blocks.want(request, num_tokens) == DEFER:
            victim = self._waiting.choose_victim(self._running) or request
            self._preempt(victim, step)
            if victim is request:
                return False
        self._blocks.commit(request, num_tokens)
        return True

    def _preempt(self, request: Request, step: Step) -> None:
        step.take_back_decode(request)
        for earlier in self._in_flight:
            earlier.drop(request)
        # Their rows may have been dropped before: the slots tell which steps still use this one.
        holders = [earlier for earlier in self._in_flight if request.slot in earlier.slots]
        if holders:
            holders[-1].released_slots.append(request.slot)
        else:
            self._slots.free(request.slot)
        self._chain.release(request)
        self._prefixes.remove(request.slot)
        self._grammar_slots.discard(request.slot)
        request.preempt()
        self._running.remove(request)
        self._waiting.add(request)
        self._counters.num_preemptions += 1
        if self._log_stats:
            request.record(EventType.PREEMPTED)

    def _schedule_prefills(self, step: Step, prefills: list[Request]) -> None:
        for request in prefills:
            if not step.budget:
                break
            if request.status is RequestStatus.RUNNING:  # else preempted in this step
                num_tokens = self._prefill_share(request, request.num_computed_tokens, step)
                if num_tokens and (granted := self._chain.take(request, num_tokens)):
                    self._add_prefill(request, granted, step)

    def _prefill_share(self, request: Request, num_computed: int, step: Step) -> int:
        """How many of its tokens a prefill may compute in this step; 0: none."""
        num_tokens = min(request.num_tokens - num_computed, self._limits.max_chunk)
        if num_tokens <= step.budget:
            return num_tokens
        if step.long_prefill is not None or not self._limits.may_split(request.num_tokens):
            return 0
        return step.budget - step.budget // 2

    def _add_prefill(self, request: Request, num_tokens: int, step: Step) -> None:
        wanted = min(request.num_tokens - request.num_computed_tokens, self._limits.max_chunk)
        if wanted > step.budget:
            step.long_prefill = request
        known_computed = request.num_computed_tokens + num_tokens == request.num_tokens
        samples = known_computed and request.max_tokens > 0
        if request.resends:
            request.resends = False
            step.admitted.append(request)
        step.add_prefill(request, num_tokens, samples=samples)
        if samples:
            self._prefixes.add(request.slot, request.block_ids, request.num_tokens)
        self._kv.cache(request, request.num_computed_tokens)
        self._leaders.add(request)

    def _extend_long_prefill(self, step: Step) -> None:
        """Give the long prefill what nobody used; it stays short of its last token."""
        request = step.long_prefill
        if request is None or not step.budget:
            return
        # Asked anew for the whole row, from where the row starts.
        row = step.requests.index(request)
        scheduled = step.num_scheduled_tokens[row]
        request.num_computed_tokens -= scheduled
        granted = self._chain.take(request, scheduled + step.budget)
        extended = max(granted, scheduled)
        request.num_computed_tokens += extended
        step.num_scheduled_tokens[row] = extended
        step.budget -= extended - scheduled
        self._kv.cache(request, request.num_computed_tokens)

    # Waiting requests.

    def _try_to_admit(self, request: Request, step: Step) -> Verdict:
        if (
            not step.budget
            or not self._slots.num_free
            or len(self._running) == self._limits.max_running
        ):
            return Verdict.FULL
        if self._leaders.holds(request, step.step_id):
            return Verdict.LATER
        if not self._blocks.may_fit(request):
            return Verdict.REFUSED
        if step.long_prefill is not None and request.prefix_hit is not None:
            # If it was long as well when it was last looked up, save another look-up.
            missing = request.num_tokens - request.prefix_hit.num_tokens
            if missing > step.budget:
                return Verdict.LATER
        hit = request.prefix_hit = self._kv.look_up(request)
        if self._leaders.find(request, hit):
            return Verdict.LATER
        num_tokens = self._prefill_share(request, hit.num_tokens, step)
        if not num_tokens:
            return Verdict.REFUSED if step.long_prefill is None else Verdict.LATER
        granted = self._chain.take(request, num_tokens)
        if granted == DEFER:
            # Only a lack of blocks may make the queue wait: it is the others that use them up.
            return Verdict.LATER if self._blocks.may_fit(request) else Verdict.REFUSED
        self._count_hit(request, hit.num_tokens)
        request.start(self._slots.take(), hit.num_tokens)
        if request.sampling_params.structured_outputs is not None:
            self._grammar_slots.add(request.slot)
        self._running.append(request)
        step.admitted.append(request)
        self._add_prefill(request, granted, step)
        if self._log_stats:
            request.record(EventType.SCHEDULED)
        return Verdict.ADMITTED

    def _count_hit(self, request: Request, num_tokens: int) -> None:
        """Account for the prefix cache once per request, not again when it is resumed."""
        if request.num_preemptions:
            return
        num_cached_tokens = min(num_tokens, request.num_prompt_tokens)
        request.num_cached_tokens = num_cached_tokens
        if request.reads_prefix_cache:
            stats = self._counters.prefix_cache
            stats.requests += 1
            stats.queries += request.num_prompt_tokens
            stats.hits += num_cached_tokens

    def _launch(self, step: Step) -> SchedulerOutput:
        self._next_step_id += 1
        self._in_flight.append(step)
        output = step.to_output(self._slots.take_freed(), self._blocks.take_new_blocks())
        if self._grammar_slots:
            output.grammar_rows = [
                row
                for row, slot in enumerate(step.slots)
                if slot in self._grammar_slots and step.samples[row]
            ]
        num_tokens = output.total_num_scheduled_tokens
        num_decode_tokens = sum(step.num_scheduled_tokens[: step.num_decode_rows])
        self._pacer.launched(num_tokens - num_decode_tokens, num_decode_tokens)
        self._counters.num_scheduled_tokens += num_tokens
        return output

    # Requests leave.

    def _finish(self, request_id: str, reason: FinishReason) -> None:
        request = self._requests.get(request_id)
        if request is None:
            return
        was_running = request.status is RequestStatus.RUNNING
        request.finish(reason)
        if was_running:
            self._running.remove(request)
            self._leave(request)
        else:
            self._waiting.remove(request)
            del self._requests[request_id]

    def _leave(self, request: Request) -> None:
        """Take back what a finished request held; its slot once no step in flight has it."""
        if self._is_in_flight(request):
            last = self._in_flight[request.last_step - self._in_flight[0].step_id]
            last.released_slots.append(request.slot)
        else:
            self._slots.free(request.slot)
        self._chain.release(request)
        self._prefixes.remove(request.slot)
        self._grammar_slots.discard(request.slot)
        del self._requests[request.request_id]

    def _is_in_flight(self, request: Request) -> bool:
        return bool(self._in_flight) and request.last_step >= self._in_flight[0].step_id
