"""An executor without a model: tokens follow from the sequence so far, faults from the request.

A request chooses its behaviour by `SamplingParams.extra_args`:
    tokens: [...]       what to sample, in order (then the hash of the sequence again)
    bad_token_at: k     the k-th output token is -1
    error_at: k         the runner reports an error instead of the k-th output token
    crash_at: k         the step that would sample the k-th output token raises
    exit_at: k          ... kills the process
    sleep: s            every step with the request takes s seconds
"""

from __future__ import annotations

import os
import signal
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.config.kv_specs import kv_cache_specs
from octavo.config.octavo_config import OctavoConfig
from octavo.executor.interface import Executor
from octavo.types.engine_output import TokenLogprobs
from octavo.types.errors import ConfigError
from octavo.types.kv_spec import KVCacheConfig, KVCacheSpec
from octavo.types.runner_output import ModelRunnerOutput
from octavo.types.scheduler_output import GrammarMasks, NewRequestData, SchedulerOutput

NUM_BLOCKS = 512
SPECIAL_TOKENS = 3  # ids below are never sampled unless scripted


class History:
    """A seed and the tokens so far. What comes next depends on all of them, at a cost that does
    not grow with their number.
    """

    def __init__(self, seed: int, tokens: Iterable[int]) -> None:
        self.tokens: list[int] = []
        self._digest = zlib.crc32(seed.to_bytes(8, "little", signed=True))
        for token in tokens:
            self.append(token)

    def append(self, token: int) -> None:
        self.tokens.append(token)
        self._digest = zlib.crc32(token.to_bytes(8, "little", signed=True), self._digest)

    def next_token(self, vocab_size: int) -> int:
        return SPECIAL_TOKENS + self._digest % (vocab_size - SPECIAL_TOKENS)


def expected_tokens(prompt: list[int], count: int, vocab_size: int, seed: int = 0) -> list[int]:
    """What a greedy request produces."""
    history = History(seed, prompt)
    for _ in range(count):
        history.append(history.next_token(vocab_size))
    return history.tokens[len(prompt) :]


@dataclass
class Slot:
    """A live request as the device would know it."""

    new: NewRequestData
    history: History

    @property
    def tokens(self) -> list[int]:
        return self.history.tokens

    @property
    def num_output(self) -> int:
        return len(self.tokens) - self.new.num_prompt_tokens

    @property
    def script(self) -> dict[str, Any]:
        return self.new.sampling_params.extra_args or {}


@dataclass
class Handle:
    output: ModelRunnerOutput
    seconds: float

    def result(self) -> ModelRunnerOutput:
        if self.seconds:
            time.sleep(self.seconds)
        return self.output


class FakeExecutor(Executor):
    """Follows SchedulerOutput as a runner must, and checks that it makes sense."""

    def __init__(self, config: OctavoConfig) -> None:
        if config.model.revision == "no-weights":
            raise ConfigError("revision='no-weights': the weights are missing; download them")
        if config.model.revision == "bug":
            raise KeyError("surprise")
        self._config = config
        self._slots: dict[int, Slot] = {}
        self._blocks = 0
        self._waiting: tuple[SchedulerOutput, ModelRunnerOutput] | None = None

    def kv_cache_specs(self) -> dict[str, KVCacheSpec]:
        return kv_cache_specs(self._config)

    def available_kv_memory(self) -> int:
        specs = self.kv_cache_specs().values()
        return NUM_BLOCKS * sum(spec.page_bytes for spec in specs)

    def initialize_kv_cache(self, config: KVCacheConfig) -> None:
        self._blocks = config.num_blocks

    def execute_model(self, step: SchedulerOutput) -> Handle:
        for slot in step.freed_slots:
            del self._slots[slot]
        for new in step.new_requests:
            holder = self._slots.get(new.slot)
            anew = holder is not None and holder.new.request_id == new.request_id
            assert holder is None or anew, "the slot is taken"
            seed = 0 if new.sampling_params.greedy else new.seed
            self._slots[new.slot] = Slot(new, History(seed, new.token_ids))
        assert step.total_num_scheduled_tokens == sum(step.num_scheduled_tokens) > 0
        assert self._waiting is None, "the step before has not been sampled"
        output = ModelRunnerOutput(step.step_id)
        if step.grammar_rows:
            self._waiting = step, output
        else:
            self._run_rows(step, output, {})
        scripts = [self._slots[slot].script for slot in step.slots]
        return Handle(output, max(script.get("sleep", 0.0) for script in scripts))

    def sample_tokens(self, masks: GrammarMasks) -> None:
        assert self._waiting is not None, "no step waits for masks"
        (step, output), self._waiting = self._waiting, None
        assert masks.step_id == step.step_id
        assert set(masks.rows) <= set(step.grammar_rows)
        self._run_rows(step, output, dict(zip(masks.rows, masks.masks, strict=True)))

    def _run_rows(
        self,
        step: SchedulerOutput,
        output: ModelRunnerOutput,
        masks: dict[int, npt.NDArray[np.int32]],
    ) -> None:
        for row, slot in enumerate(step.slots):
            self._run_row(step, row, self._slots[slot], output, masks.get(row))

    def collective_rpc(self, method: str, args: tuple[Any, ...] = ()) -> list[Any]:
        if method == "echo":
            return [list(args)]
        if method == "object":
            return [object()]
        if method == "environ":
            return [os.environ.get(args[0])]
        if method == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        raise ValueError(f"a worker has no public method {method!r}")

    def shutdown(self) -> None:
        self._slots.clear()

    def _run_row(
        self,
        step: SchedulerOutput,
        row: int,
        slot: Slot,
        output: ModelRunnerOutput,
        mask: npt.NDArray[np.int32] | None,
    ) -> None:
        computed, scheduled = step.num_computed_tokens[row], step.num_scheduled_tokens[row]
        if row in step.forced_token_ids:
            assert len(step.forced_token_ids[row]) == scheduled
            for position, token in enumerate(step.forced_token_ids[row], computed):
                if position == len(slot.tokens):
                    slot.history.append(token)
                assert slot.tokens[position] == token
        elif row < step.num_decode_rows:
            assert computed == len(slot.tokens) - 1, "a decode row starts at the last token"
        assert computed + scheduled <= len(slot.tokens)
        params = slot.new.sampling_params
        if params.prompt_logprobs is not None:
            last = min(computed + scheduled, slot.new.num_prompt_tokens - 1)
            output.prompt_logprobs[row] = [
                self._logprobs(slot.tokens[position + 1], params.prompt_logprobs)
                for position in range(computed, last)
            ]
        output.sampled_token_ids.append([])
        if not step.samples[row]:
            return
        assert computed + scheduled == len(slot.tokens)
        number, script = slot.num_output, slot.script
        if script.get("crash_at") == number:
            raise RuntimeError("device fault: an illegal memory access was encountered")
        if script.get("exit_at") == number:
            os.kill(os.getpid(), signal.SIGKILL)
        if script.get("error_at") == number:
            output.errors[row] = "logits are not finite"
        tokens = script.get("tokens", [])
        token = (
            tokens[number]
            if number < len(tokens)
            else slot.history.next_token(self._config.model.vocab_size)
        )
        if mask is not None:
            allowed = np.unpackbits(mask.view(np.uint8), bitorder="little").nonzero()[0]
            token = int(allowed[slot.history.next_token(1 << 20) % len(allowed)])
        if script.get("bad_token_at") == number:
            token = -1
        slot.history.append(token)
        output.sampled_token_ids[row] = [token]
        if params.logprobs is not None:
            output.logprobs[row] = [self._logprobs(token, params.logprobs)]

    def _logprobs(self, token: int, count: int) -> TokenLogprobs:
        """The token itself ranks second, as if another one were more likely."""
        others = [3 + (token + i) % 200 for i in range(1, count + 1)]
        return TokenLogprobs(
            [token, *others], [-1.0 - 0.5 * i for i in range(count + 1)], 2 if count else 1
        )


class DyingExecutor(FakeExecutor):
    """Takes its process down while it is made."""

    def __init__(self, config: OctavoConfig) -> None:
        os._exit(7)
