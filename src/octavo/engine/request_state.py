"""RequestState: one sequence on its way from tokens to RequestOutputs."""

from __future__ import annotations

from octavo.engine.collector import RequestOutputCollector
from octavo.engine.detokenizer import IncrementalDetokenizer
from octavo.engine.hidden_states import HiddenStatesCollector
from octavo.engine.logprobs import LogprobsProcessor
from octavo.engine.parallel_sampling import ParentRequest
from octavo.engine.stats import FinishedRequest, IterationStats, RequestTimes
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.engine_output import EngineCoreOutput, FinishReason
from octavo.types.outputs import CompletionOutput, PositionLogprobs, RequestOutput
from octavo.types.request import EngineCoreRequest, FinishRequest
from octavo.types.sampling_params import RequestOutputKind


class RequestState:
    """Detokenizer, log-probabilities, times and what has been shown so far of one sequence."""

    def __init__(
        self,
        external_id: str,
        request: EngineCoreRequest,
        prompt: str | None,
        *,
        index: int,
        parent: ParentRequest | None,
        collector: RequestOutputCollector | None,
        tokenizer: Tokenizer | None,
        stream_interval: int,
    ) -> None:
        self.external_id = external_id
        self.finish_reason: FinishReason | None = None
        self._request = request
        self._params = request.sampling_params
        self._kind = self._params.output_kind
        self._prompt = prompt
        self._prompt_token_ids = request.token_ids
        if len(request.token_ids) > request.num_prompt_tokens:
            self._prompt_token_ids = request.token_ids[: request.num_prompt_tokens]
        self._index = index
        self._parent = parent
        self._collector = collector
        self._stream_interval = stream_interval
        # Whether an output between first and last is a delta of text and nothing else.
        self._is_plain = (
            self._kind is RequestOutputKind.DELTA
            and self._params.logprobs is None
            and self._params.prompt_logprobs is None
            and self._params.hidden_states is None
        )
        # Whether, besides, every token makes for one.
        self._is_steady = self._is_plain and stream_interval == 1 and not self._params.stop_strings
        self._detokenizer = IncrementalDetokenizer(tokenizer, request)
        self._logprobs = LogprobsProcessor(tokenizer, self._prompt_token_ids)
        wanted = self._params.hidden_states
        self._hidden_states = None if wanted is None else HiddenStatesCollector(wanted)
        self._times = RequestTimes(request.arrival_time)
        self._stop_reason: int | str | None = None
        self._error: str | None = None
        self._error_param: str | None = None
        self._num_cached_tokens: int | None = None
        self._num_shown = 0  # output tokens in the outputs so far
        self._prompt_logprobs_shown = False

    @property
    def num_output_tokens(self) -> int:
        """Tokens produced, without those after a stop string."""
        return self._detokenizer.num_output_tokens

    @property
    def _num_certain(self) -> int:
        """Tokens that stay in the output whatever follows."""
        detokenizer = self._detokenizer
        return len(detokenizer.output_token_ids) - detokenizer.num_undecided

    def update(
        self, output: EngineCoreOutput, timestamp: float, stats: IterationStats
    ) -> RequestOutput | None:
        """Take the core's news; the output to show, if it is time for one.

        Text may have gone to the reader already.
        """
        if (
            self._is_steady
            and self._num_shown
            and output.new_token_ids
            and output.finish_reason is None
            and output.events is None
            and output.num_cached_tokens is None
        ):
            return self._go_on(output.new_token_ids, timestamp, stats)
        if output.events:
            self._times.note_events(output.events)
        if output.num_cached_tokens is not None:
            self._num_cached_tokens = output.num_cached_tokens
        if output.new_prompt_logprobs:
            self._logprobs.add_prompt(output.new_prompt_logprobs)
        if output.hidden_states is not None and self._hidden_states is not None:
            self._hidden_states.add(output.hidden_states)
        before = self._num_certain
        self._take_tokens(output)
        if output.new_token_ids:
            latency = self._times.note_tokens(timestamp)
            if latency is not None:
                stats.note_latency(latency)
            elif self._times.first_token_latency is not None:
                stats.num_prompt_tokens += len(self._prompt_token_ids)
                stats.num_cached_tokens += self._num_cached_tokens or 0
                stats.first_token_latencies.append(self._times.first_token_latency)
        if self.finish_reason is not None:
            self._times.finish()
        shown = self._show() if self._is_time() else None
        stats.num_generation_tokens += self._num_certain - before
        return shown

    def _go_on(
        self, token_ids: list[int], timestamp: float, stats: IterationStats
    ) -> RequestOutput | None:
        """`update` for nearly all tokens: those in the middle of a steady stream."""
        text = self._detokenizer.pass_on(token_ids)
        latency = self._times.note_tokens(timestamp)
        if latency is not None:
            stats.note_latency(latency)
        num_tokens = len(token_ids)
        stats.num_generation_tokens += num_tokens
        self._num_shown += num_tokens
        return self._show_delta(text, token_ids)

    def _show(self) -> RequestOutput | None:
        if self._is_plain and self._num_shown and self.finish_reason is None:
            text = self._detokenizer.get_next_output_text(finished=False, delta=True)
            begin, self._num_shown = self._num_shown, self._num_certain
            token_ids = self._detokenizer.output_token_ids[begin : self._num_shown]
            return self._show_delta(text, token_ids)
        return self._make_output(self._make_completion())

    def _show_delta(self, text: str, token_ids: list[int]) -> RequestOutput | None:
        """Hand over plain news; as an output if they can't go to the reader at once."""
        collector = self._collector
        if collector is not None and collector.put_text(self._index, text, token_ids):
            return None
        return self._make_output(CompletionOutput(self._index, text, token_ids.copy()))

    def abort(self) -> RequestOutput | None:
        """End the sequence here with what it has; the last output to show."""
        self.finish_reason = FinishReason.ABORT
        self._times.finish()
        return self._make_output(self._make_completion())

    def break_off(self, error: str) -> RequestOutput | None:
        """End the sequence because its news could not be processed; nothing new is shown."""
        self.finish_reason = FinishReason.ERROR
        self._error = error
        self._stop_reason = None
        self._times.finish()
        is_delta = self._kind is RequestOutputKind.DELTA
        completion = CompletionOutput(
            index=self._index,
            text="" if is_delta else self._detokenizer.text,
            token_ids=[] if is_delta else list(self._detokenizer.output_token_ids),
            finish_reason=str(FinishReason.ERROR),
        )
        return self._make_output(completion)

    def deliver(self, output: RequestOutput) -> bool:
        """Put an output in the reader's mailbox; False if there is none."""
        if self._collector is None:
            return False
        self._collector.put(output)
        return True

    def fail(self, error: Exception) -> None:
        """End the reader's stream with an error."""
        if self._collector is not None:
            self._collector.fail(error)

    def finish_request(self) -> FinishRequest:
        """What to tell the core about an end that was decided here."""
        return FinishRequest(self._request.request_id, self._reason(), self.num_output_tokens)

    def summary(self) -> FinishedRequest:
        """The numbers of an ended sequence."""
        n = 1 if self._parent is None else self._parent.n
        num_tokens = self.num_output_tokens
        cached = self._num_cached_tokens
        return FinishedRequest(
            reason=self._reason(),
            num_prompt_tokens=len(self._prompt_token_ids),
            num_generation_tokens=num_tokens,
            max_tokens=self._request.max_tokens,
            n=n if self._index == 0 else None,
            times=self._times,
            max_num_generation_tokens=(
                num_tokens if self._parent is None else self._parent.note_end(num_tokens)
            ),
            num_computed_prompt_tokens=(
                None if cached is None else len(self._prompt_token_ids) - cached
            ),
        )

    def _reason(self) -> FinishReason:
        return FinishReason.ABORT if self.finish_reason is None else self.finish_reason

    def _take_tokens(self, output: EngineCoreOutput) -> None:
        reason = output.finish_reason
        stop_string = self._detokenizer.update(output.new_token_ids, reason is FinishReason.STOP)
        self.finish_reason, self._stop_reason = reason, output.stop_reason
        if reason is FinishReason.ERROR:
            self._error, self._stop_reason = str(output.stop_reason), None
            self._error_param = output.error_param
        if output.new_logprobs:
            self._logprobs.add(output.new_logprobs)
        if stop_string is not None:
            self.finish_reason, self._stop_reason = FinishReason.STOP, stop_string

    def _is_time(self) -> bool:
        if self.finish_reason is not None:
            return True
        num_new = self._num_certain - self._num_shown
        if self._kind is RequestOutputKind.FINAL_ONLY or num_new <= 0:
            return False
        return self._num_shown == 0 or num_new >= self._stream_interval

    def _make_completion(self) -> CompletionOutput:
        finished = self.finish_reason is not None
        is_delta = self._kind is RequestOutputKind.DELTA
        # Text held back to the end may complete a stop string, which ends the tokens before it.
        text = self._detokenizer.get_next_output_text(finished, is_delta)
        self._logprobs.truncate(self.num_output_tokens)
        begin = self._num_shown if is_delta else 0
        self._num_shown = end = self._num_certain
        logprobs = None
        wants_logprobs = self._params.logprobs is not None
        if wants_logprobs:
            logprobs = (
                self._logprobs.take(end - begin) if is_delta else self._logprobs.logprobs[:end]
            )
        states = None
        if finished and self._hidden_states is not None:
            num_tokens = len(self._prompt_token_ids) + self.num_output_tokens
            states = self._hidden_states.result(num_tokens)
        return CompletionOutput(
            index=self._index,
            text=text,
            token_ids=self._detokenizer.output_token_ids[begin:end],
            cumulative_logprob=self._logprobs.cumulative if wants_logprobs else None,
            logprobs=logprobs,
            finish_reason=None if self.finish_reason is None else str(self.finish_reason),
            stop_reason=self._stop_reason,
            hidden_states=states,
        )

    def _make_output(self, completion: CompletionOutput) -> RequestOutput | None:
        output = RequestOutput(
            request_id=self.external_id,
            prompt=self._prompt,
            prompt_token_ids=self._prompt_token_ids,
            outputs=[completion],
            finished=completion.finished,
            prompt_logprobs=self._prompt_logprobs(),
            num_cached_tokens=self._num_cached_tokens,
            metrics=self._times.as_metrics(),
            error=self._error,
            error_param=self._error_param,
        )
        if self._parent is not None and not self._parent.gather(output):
            return None
        return output

    def _prompt_logprobs(self) -> list[PositionLogprobs | None] | None:
        """In a stream of deltas they are shown once."""
        if self._params.prompt_logprobs is None or self._prompt_logprobs_shown:
            return None
        self._prompt_logprobs_shown = self._kind is RequestOutputKind.DELTA
        return self._logprobs.finish_prompt()
