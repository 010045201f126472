"""A deterministic fake model over a simulated KV memory, and a driver for the scheduler.

The fake model's next token is a hash of every token before it. The device keeps what a real one
keeps (a request table, block tables, KV memory), learns of requests only through SchedulerOutput,
and checks that each row's attention reads exactly the row's own prefix. So a wrong block, slot,
count or stale token either fails a check or changes the tokens.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from octavo.core.scheduler import Scheduler
from octavo.types.engine_output import FinishReason, TokenLogprobs
from octavo.types.kv_spec import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroup,
    SlidingWindowSpec,
)
from octavo.types.request import EngineCoreRequest, FinishRequest, MediaSpan
from octavo.types.runner_output import ModelRunnerOutput
from octavo.types.sampling_params import SamplingParams
from octavo.types.scheduler_output import DEVICE_DRAFT, SchedulerOutput

VOCAB_SIZE = 50
EOS = 7


def next_token(state: int, seed: int) -> int:
    """The fake model and sampler: a token from the hash of the whole prefix."""
    return hash((state, seed)) % VOCAB_SIZE


def extend_state(state: int, token: int) -> int:
    """The hash of a prefix and one more token."""
    return hash((state, token))


def full_spec(block_size: int = 4) -> FullAttentionSpec:
    return FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=8, dtype="float32")


def sliding_spec(window: int, block_size: int = 4) -> SlidingWindowSpec:
    return SlidingWindowSpec(
        block_size=block_size, num_kv_heads=1, head_size=8, dtype="float32", window=window
    )


def kv_config(num_blocks: int, *specs: FullAttentionSpec | SlidingWindowSpec) -> KVCacheConfig:
    """One group of one layer per spec; a single full-attention group if none is given."""
    groups = [KVCacheGroup((f"layer{i}",), spec) for i, spec in enumerate(specs or (full_spec(),))]
    return KVCacheConfig(num_blocks=num_blocks, groups=tuple(groups))


def make_request(
    request_id: str,
    prompt: list[int] | int,
    max_tokens: int = 4,
    *,
    seed: int = 0,
    priority: int = 0,
    arrival_time: float = 0.0,
    cache_salt: str | None = None,
    media: tuple[MediaSpan, ...] = (),
    client_index: int = 0,
    eos: bool = False,
    **params: object,
) -> EngineCoreRequest:
    """A request; an int as `prompt` stands for that many distinct tokens.

    Without `eos` no token ends the sequence.
    """
    token_ids = list(range(100, 100 + prompt)) if isinstance(prompt, int) else list(prompt)
    return EngineCoreRequest(
        request_id=request_id,
        token_ids=token_ids,
        num_prompt_tokens=len(token_ids),
        sampling_params=SamplingParams(
            max_tokens=max_tokens, eos_token_ids=[EOS] if eos else None, **params
        ),
        seed=seed,
        arrival_time=arrival_time,
        max_tokens=max_tokens,
        client_index=client_index,
        priority=priority,
        cache_salt=cache_salt,
        media=media,
    )


def expected_output(request: EngineCoreRequest) -> tuple[list[int], FinishReason]:
    """What a loop over one request alone produces."""
    params = request.sampling_params
    state = 0
    for token in request.token_ids:
        state = extend_state(state, token)
    output: list[int] = []
    while len(output) < request.max_tokens:
        token = next_token(state, request.seed)
        output.append(token)
        state = extend_state(state, token)
        if len(output) >= params.min_tokens and (
            (token in (params.eos_token_ids or []) and not params.ignore_eos)
            or token in (params.stop_token_ids or [])
        ):
            return output, FinishReason.STOP
    return output, FinishReason.LENGTH


@dataclass
class DeviceRow:
    """A row of the device's request table."""

    request_id: str
    tokens: list[int]
    num_prompt_tokens: int
    num_computed: int
    tables: list[list[int]]
    seed: int
    wants_prompt_logprobs: bool
    states: list[int] = field(default_factory=list)  # states[i]: hash of tokens[: i + 1]
    drafts: list[int] = field(default_factory=list)

    def state_of(self, tokens: list[int]) -> list[int]:
        """Extend `states` over `tokens`, without keeping the result."""
        state = self.states[-1] if self.states else 0
        states = []
        for token in tokens:
            state = extend_state(state, token)
            states.append(state)
        return states

    def append(self, tokens: list[int]) -> None:
        self.states += self.state_of(tokens)
        self.tokens += tokens


class SimulatedExecutor:
    """Executes steps in the order given, as a device stream does."""

    def __init__(
        self,
        config: KVCacheConfig,
        num_slots: int,
        *,
        num_drafts: int = 0,
        draft_accuracy: float = 0.7,
        seed: int = 0,
    ) -> None:
        self.config = config
        self.num_slots = num_slots
        self.num_drafts = num_drafts
        self.draft_accuracy = draft_accuracy
        self.random = random.Random(seed)
        self.table: dict[int, DeviceRow] = {}
        # memory[block][offset]: (group, hash of the prefix up to the token) or None
        self.memory: list[list[tuple[int, int] | None]] = [
            [None] * max(g.spec.block_size for g in config.groups) for _ in range(config.num_blocks)
        ]
        self.faults: dict[str, str | int] = {}  # request id -> error text, or a bad token id

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        self._update_table(output)
        self._check_shape(output)
        self._check_shared_prefixes(output)
        rows = [self._inputs(output, row) for row in range(len(output.slots))]
        # All writes of a step come before all reads.
        for device_row, start, inputs in rows:
            self._write(device_row, start, inputs)
        for device_row, start, inputs in rows:
            self._check_reads(device_row, start, inputs)
        result = ModelRunnerOutput(step_id=output.step_id, sampled_token_ids=[])
        drafts = []
        for row, (device_row, start, inputs) in enumerate(rows):
            sampled = self._sample(output, row, device_row, start, inputs, result)
            result.sampled_token_ids.append(sampled)
            drafts.append(list(device_row.drafts))
        if self.num_drafts:
            result.draft_token_ids = drafts
        return result

    def _update_table(self, output: SchedulerOutput) -> None:
        for slot in output.freed_slots:
            del self.table[slot]
        for new in output.new_requests:
            holder = self.table.get(new.slot)
            assert holder is None or holder.request_id == new.request_id, "slot is taken"
            assert 0 <= new.slot < self.num_slots
            row = DeviceRow(
                new.request_id,
                [],
                new.num_prompt_tokens,
                new.num_computed_tokens,
                [list(ids) for ids in new.block_ids],
                new.seed,
                new.sampling_params.prompt_logprobs is not None,
            )
            row.append(new.token_ids)
            self.table[new.slot] = row
        for blocks in output.new_blocks:
            table = self.table[blocks.slot].tables[blocks.group]
            assert blocks.start == len(table), "block tables are append-only"
            table += blocks.block_ids

    def _check_shape(self, output: SchedulerOutput) -> None:
        num_rows = len(output.slots)
        assert len(set(output.slots)) == num_rows, "a slot has two rows"
        assert len(output.num_computed_tokens) == num_rows
        assert len(output.num_scheduled_tokens) == num_rows
        assert len(output.samples) == num_rows
        assert all(count > 0 for count in output.num_scheduled_tokens)
        assert sum(output.num_scheduled_tokens) == output.total_num_scheduled_tokens

    def _check_shared_prefixes(self, output: SchedulerOutput) -> None:
        """Groups are disjoint ranges of one-token decode rows that read the same blocks."""
        end = 0
        for prefix in output.shared_prefixes:
            assert prefix.first_row >= end, "groups are in order and disjoint"
            assert prefix.num_rows > 1
            end = prefix.first_row + prefix.num_rows
            assert end <= output.num_decode_rows
            assert set(output.num_scheduled_tokens[prefix.first_row : end]) == {1}
            rows = [self.table[slot] for slot in output.slots[prefix.first_row : end]]
            assert all(prefix.num_tokens <= row.num_computed for row in rows)
            for group, layers in enumerate(self.config.groups):
                if isinstance(layers.spec, FullAttentionSpec):
                    count, rest = divmod(prefix.num_tokens, layers.spec.block_size)
                    assert count
                    assert not rest
                    tables = {tuple(row.tables[group][:count]) for row in rows}
                    assert len(tables) == 1, "rows of a group have other blocks"
                    assert all(len(row.tables[group]) >= count for row in rows)

    def _inputs(self, output: SchedulerOutput, row: int) -> tuple[DeviceRow, int, list[int]]:
        device_row = self.table[output.slots[row]]
        computed = output.num_computed_tokens[row]
        count = output.num_scheduled_tokens[row]
        start = device_row.num_computed
        if row >= output.num_decode_rows:
            assert computed == start, "prefill rows know exactly where they are"
            inputs = device_row.tokens[start : start + count]
            assert len(inputs) == count
            at_end = start + count == len(device_row.tokens)
            assert at_end or not output.samples[row]
            return device_row, start, inputs
        forced = output.forced_token_ids.get(row)
        if forced is not None:
            assert computed == start
            assert len(forced) == count
            known = device_row.tokens[start : start + count]
            assert known == forced[: len(known)]
            device_row.append(forced[len(known) :])
            return device_row, start, forced
        assert output.samples[row]
        assert start == len(device_row.tokens) - 1
        assert computed >= start, "decode rows are optimistic"
        drafts = output.draft_token_ids.get(row, [])
        assert len(drafts) == count - 1
        if DEVICE_DRAFT in drafts:
            assert set(drafts) == {DEVICE_DRAFT}
            assert len(drafts) <= len(device_row.drafts)
            drafts = device_row.drafts[: len(drafts)]
        return device_row, start, [device_row.tokens[-1], *drafts]

    def _states(self, device_row: DeviceRow, start: int, inputs: list[int]) -> list[int]:
        """Hashes of the prefixes that end at each token up to the row's last input."""
        end = start + len(inputs)
        if end <= len(device_row.tokens):
            return device_row.states[:end]
        return device_row.states + device_row.state_of(inputs[1:])

    def _write(self, device_row: DeviceRow, start: int, inputs: list[int]) -> None:
        states = self._states(device_row, start, inputs)
        for group, (layers, table) in enumerate(
            zip(self.config.groups, device_row.tables, strict=True)
        ):
            size = layers.spec.block_size
            for position in range(start, start + len(inputs)):
                block = table[position // size]
                assert block != 0, "the null block is never written"
                self.memory[block][position % size] = (group, states[position])

    def _check_reads(self, device_row: DeviceRow, start: int, inputs: list[int]) -> None:
        states = self._states(device_row, start, inputs)
        for group, (layers, table) in enumerate(
            zip(self.config.groups, device_row.tables, strict=True)
        ):
            size = layers.spec.block_size
            first = 0
            if isinstance(layers.spec, SlidingWindowSpec):
                first = max(start - layers.spec.window + 1, 0)
            for index in range(first // size, (len(states) - 1) // size + 1):
                low, high = max(index * size, first), min((index + 1) * size, len(states))
                seen = self.memory[table[index]][low - index * size : high - index * size]
                assert seen == [(group, state) for state in states[low:high]], (
                    f"{device_row.request_id} reads foreign keys at {low}..{high}"
                )

    def _sample(
        self,
        output: SchedulerOutput,
        row: int,
        device_row: DeviceRow,
        start: int,
        inputs: list[int],
        result: ModelRunnerOutput,
    ) -> list[int]:
        states = self._states(device_row, start, inputs)
        if device_row.wants_prompt_logprobs and row >= output.num_decode_rows:
            end = min(start + len(inputs), device_row.num_prompt_tokens - 1)
            predicted = device_row.tokens[start + 1 : end + 1]
            result.prompt_logprobs[row] = [TokenLogprobs([t], [-1.0], 1) for t in predicted]
        if row >= output.num_decode_rows or row in output.forced_token_ids:
            device_row.num_computed += len(inputs)
            if not output.samples[row]:
                return []
            sampled = [next_token(states[-1], device_row.seed)]
        else:
            sampled = []
            for index in range(len(inputs)):
                token = next_token(states[start + index], device_row.seed)
                sampled.append(token)
                if index + 1 < len(inputs) and inputs[index + 1] != token:
                    break
            device_row.num_computed += len(sampled)
        device_row.append(sampled)
        device_row.drafts = self._propose(device_row)
        fault = self.faults.pop(device_row.request_id, None)
        if isinstance(fault, str):
            result.errors[row] = fault
        elif fault is not None:
            return [fault]
        result.logprobs[row] = [TokenLogprobs([t], [-0.5], 1) for t in sampled]
        return sampled

    def _propose(self, device_row: DeviceRow) -> list[int]:
        """The true continuation with errors."""
        drafts: list[int] = []
        state = device_row.states[-1]
        for _ in range(self.num_drafts):
            token = next_token(state, device_row.seed)
            if self.random.random() > self.draft_accuracy:
                token = (token + 1) % VOCAB_SIZE
            drafts.append(token)
            state = extend_state(state, token)
        return drafts


@dataclass
class Received:
    """What a front end has got for one request."""

    tokens: list[int] = field(default_factory=list)
    logprob_tokens: list[int] = field(default_factory=list)
    prompt_logprob_tokens: list[int | None] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    num_cached_tokens: int | None = None
    num_outputs: int = 0
    first_step: int | None = None  # the step that produced the first token


class Driver:
    """A front end and an engine loop around a scheduler and a SimulatedExecutor."""

    def __init__(
        self,
        scheduler: Scheduler,
        executor: SimulatedExecutor,
        *,
        depth: int = 1,
    ) -> None:
        """`depth`: steps in flight before the oldest one's results are applied."""
        self.scheduler = scheduler
        self.executor = executor
        self.depth = depth
        self.in_flight: deque[tuple[SchedulerOutput, ModelRunnerOutput]] = deque()
        self.received: dict[str, Received] = {}
        self.requests: dict[str, EngineCoreRequest] = {}
        self.ended: set[str] = set()  # by the front end
        self.forced: set[str] = set()
        self.steps: list[SchedulerOutput] = []

    def add(self, request: EngineCoreRequest) -> None:
        self.scheduler.add_request(request)
        self.requests[request.request_id] = request
        self.received[request.request_id] = Received()

    def abort(self, *request_ids: str) -> None:
        self.ended.update(request_ids)
        self.scheduler.abort_requests(request_ids)

    def finish(self, request_id: str, num_output_tokens: int) -> None:
        self.ended.add(request_id)
        self.scheduler.finish_request(
            FinishRequest(request_id, FinishReason.STOP, num_output_tokens)
        )

    def launch(self) -> SchedulerOutput:
        """Schedule a step and execute it; its results are kept back."""
        output = self.scheduler.schedule()
        if output.slots:
            self.steps.append(output)
            self.in_flight.append((output, self.executor.execute(output)))
        return output

    def force(self, output: SchedulerOutput, row: int, count: int) -> int:
        """Tell the scheduler up to `count` tokens of the row just launched; returns how many."""
        request = self.scheduler.requests_of(output)[row]
        device_row = self.executor.table[output.slots[row]]
        if request is None or not output.samples[row] or request.request_id in self.executor.faults:
            return 0
        token, state = device_row.tokens[-1], device_row.states[-1]
        run: list[int] = []
        room = request.max_length - (len(device_row.tokens) - 1)
        while len(run) < min(count, room) and token not in request.stop_ids:
            run.append(token)
            token = next_token(state, device_row.seed)
            state = extend_state(state, token)
        if len(run) > 1:
            self.forced.add(request.request_id)
            self.scheduler.force(output, row, run)
        return len(run)

    def retry(self, row: int) -> bool:
        """Have a row of the oldest step sampled again; False if it can't be."""
        output, result = self.in_flight[0]
        if not output.samples[row] or self.scheduler.requests_of(output)[row] is None:
            return False
        self.scheduler.retry(output, row, result)
        return True

    def collect(self) -> None:
        """Apply the results of the oldest step."""
        output, result = self.in_flight.popleft()
        for client, news in self.scheduler.update_from_output(output, result).items():
            for item in news.outputs:
                self._receive(client, item, output.step_id)

    def step(self) -> SchedulerOutput:
        """One turn of the engine loop."""
        output = self.launch()
        if self.in_flight and (len(self.in_flight) >= self.depth or not output.slots):
            self.collect()
        return output

    def run(self, max_steps: int = 2000) -> None:
        """Turn the loop until nothing is left."""
        for _ in range(max_steps):
            if not self.scheduler.has_requests():
                return
            self.step()
        raise AssertionError(f"not done after {max_steps} steps")

    def tokens(self, request_id: str) -> list[int]:
        return self.received[request_id].tokens

    def check_result(self, request_id: str) -> None:
        """A request that ended by itself has exactly the tokens of a loop over it alone."""
        tokens, reason = expected_output(self.requests[request_id])
        received = self.received[request_id]
        assert received.tokens == tokens
        assert received.finish_reason == reason
        prompt = self.requests[request_id].token_ids
        if self.requests[request_id].sampling_params.prompt_logprobs is not None:
            assert received.prompt_logprob_tokens == [None, *prompt[1:]]
        if request_id not in self.forced:
            assert received.logprob_tokens == tokens

    def _receive(self, client: int, item: object, step_id: int) -> None:
        request_id = item.request_id
        received = self.received[request_id]
        assert request_id not in self.ended, "news of a request that the front end ended"
        assert received.finish_reason is None, "news after the end"
        assert client == self.requests[request_id].client_index
        assert item.new_token_ids or item.new_prompt_logprobs or item.finish_reason is not None
        if received.num_outputs == 0:
            assert item.num_cached_tokens is not None
            received.num_cached_tokens = item.num_cached_tokens
        else:
            assert item.num_cached_tokens is None
        received.num_outputs += 1
        if item.new_token_ids and received.first_step is None:
            received.first_step = step_id
        received.tokens += item.new_token_ids
        received.logprob_tokens += [p.token_ids[0] for p in item.new_logprobs or []]
        received.prompt_logprob_tokens += [
            p and p.token_ids[0] for p in item.new_prompt_logprobs or []
        ]
        received.finish_reason = item.finish_reason
        received.stop_reason = item.stop_reason


def make_driver(
    *,
    num_blocks: int = 100,
    specs: tuple[FullAttentionSpec | SlidingWindowSpec, ...] = (),
    max_num_batched_tokens: int = 64,
    max_num_seqs: int = 8,
    num_slots: int | None = None,
    max_model_len: int = 200,
    depth: int = 1,
    num_drafts: int = 0,
    draft_accuracy: float = 0.7,
    seed: int = 0,
    **options: object,
) -> Driver:
    """A scheduler and a simulated device that fit each other."""
    config = kv_config(num_blocks, *specs)
    num_slots = num_slots or 2 * max_num_seqs
    scheduler = Scheduler(
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        num_slots=num_slots,
        max_model_len=max_model_len,
        kv_cache_config=config,
        max_concurrent_steps=depth,
        num_speculative_tokens=num_drafts,
        **{"vocab_size": VOCAB_SIZE, **options},
    )
    executor = SimulatedExecutor(
        config, num_slots, num_drafts=num_drafts, draft_accuracy=draft_accuracy, seed=seed
    )
    return Driver(scheduler, executor, depth=depth)


def count_look_ups(driver: Driver) -> list[str]:
    """The ids of requests looked up in the prefix cache from now on."""
    look_ups = []
    original = driver.scheduler._kv.look_up

    def look_up(request):
        look_ups.append(request.request_id)
        return original(request)

    driver.scheduler._kv.look_up = look_up
    return look_ups
