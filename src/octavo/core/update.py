"""ResultApplier: what a step produced -> tokens, finished requests, news for the front ends."""

from __future__ import annotations

from octavo.core.counters import SchedulerCounters
from octavo.core.kv.manager import KVCacheManager
from octavo.core.request import Request
from octavo.core.step import Step
from octavo.core.stop import check_stop
from octavo.types.engine_output import EngineCoreOutput, FinishReason, TokenLogprobs
from octavo.types.runner_output import ModelRunnerOutput
from octavo.utils.logging import get_logger

logger = get_logger(__name__)

# News by client index.
Outputs = dict[int, list[EngineCoreOutput]]


class ResultApplier:
    """Appends tokens, finds the ends of sequences, keeps the prefix cache up to date."""

    def __init__(
        self, kv: KVCacheManager, counters: SchedulerCounters, vocab_size: int | None
    ) -> None:
        """`vocab_size`: ids outside it fail their request; None: any 32-bit id will do."""
        self._kv = kv
        self._counters = counters
        self._vocab_size = 1 << 32 if vocab_size is None else vocab_size

    def apply(self, step: Step, result: ModelRunnerOutput) -> tuple[Outputs, list[Request]]:
        """Returns the news and the requests that ended.

        Rows of requests that have been preempted or have ended since are skipped.
        """
        outputs: Outputs = {}
        finished: list[Request] = []
        vocab_size = self._vocab_size
        special = {
            *result.errors,
            *result.logprobs,
            *result.prompt_logprobs,
            *result.mirostat_mu,
            *result.hidden_states,
        }
        if step.drafts or result.draft_token_ids:
            special.update(range(len(step.requests)))
        elif step.tails:
            special.update(row for row, slot in enumerate(step.slots) if slot in step.tails)
        rows = zip(step.requests, result.sampled_token_ids, strict=True)
        for row, (request, tokens) in enumerate(rows):
            if request is None or request.finish_reason is not None:
                continue
            token_ids = request.token_ids
            # The ordinary case, in a few operations: one token that ends nothing.
            if (
                len(tokens) == 1
                and row not in special
                and not request.has_news
                and tokens[0] not in request.stop_ids
                and len(token_ids) + 1 < request.max_length
                and request.loops is None
                and 0 <= tokens[0] < vocab_size
            ):
                token_ids.append(tokens[0])
                if len(token_ids) > request.next_cache_at:
                    self._kv.cache(request, len(token_ids) - 1)
                output = EngineCoreOutput(request.request_id, tokens)
            else:
                news = self._apply_row(step, row, request, tokens, result)
                if request.finish_reason is not None:
                    finished.append(request)
                if news is None:
                    continue
                output = news
            client = request.client_index
            if client in outputs:
                outputs[client].append(output)
            else:
                outputs[client] = [output]
        return outputs, finished

    def _apply_row(
        self, step: Step, row: int, request: Request, tokens: list[int], result: ModelRunnerOutput
    ) -> EngineCoreOutput | None:
        """Every case; None if there is nothing to tell."""
        forced = step.tails.get(step.slots[row], tokens)
        error = result.errors.get(row) or self._find_fault(step, row, tokens)
        if error is None and forced[:1] != tokens[:1]:
            error = f"the grammar allows {forced[0]} only, but {tokens[0]} was sampled"
        if error is not None:
            logger.error("request %s failed: %s", request.request_id, error)
            # What the row wrote to the cache may be as wrong as its result.
            self._kv.forget(request, request.prefill_start)
            request.finish(FinishReason.ERROR, error)
            return _output(request, [], None, None)
        self._settle_drafts(step, row, request, tokens)
        end = step.num_computed_tokens[row] + step.num_scheduled_tokens[row]
        kept = self._append(request, forced, end)
        request.mirostat_mu = result.mirostat_mu.get(row, request.mirostat_mu)
        request.draft_token_ids = result.draft_token_ids[row] if result.draft_token_ids else []
        if request.max_tokens == 0 and end >= request.num_prompt_tokens:
            request.finish(FinishReason.LENGTH)
        prompt_logprobs = _prompt_logprobs(request, step, row, result)
        logprobs = result.logprobs.get(row)
        states = result.hidden_states.get(row)
        news = kept or prompt_logprobs is not None or states is not None
        if not news and request.finish_reason is None:
            return None
        output = _output(request, kept, logprobs and logprobs[: len(kept)], prompt_logprobs)
        output.hidden_states = states
        output.pooled = result.pooled.get(row)
        return output

    def _find_fault(self, step: Step, row: int, tokens: list[int]) -> str | None:
        if step.samples[row] and not tokens:
            return "no token was sampled"
        for token in tokens:
            if not 0 <= token < self._vocab_size:
                return f"sampled token id {token} is outside the vocabulary"
        return None

    def _settle_drafts(self, step: Step, row: int, request: Request, tokens: list[int]) -> None:
        """Take back what was counted as computed for drafts that were not accepted."""
        drafts = step.drafts[row] if row < len(step.drafts) else ()
        if drafts:
            num_accepted = len(tokens) - 1
            request.num_computed_tokens -= len(drafts) - num_accepted
            self._counters.num_draft_tokens += len(drafts)
            self._counters.num_accepted_tokens += num_accepted

    def _append(self, request: Request, tokens: list[int], end: int) -> list[int]:
        """Append tokens up to the one that ends the request; returns those appended.

        Tokens before `end` are computed, save for drafts that were not accepted.
        """
        token_ids = request.token_ids
        for count, token in enumerate(tokens, 1):
            token_ids.append(token)
            loops = request.loops is not None and request.loops.add(token)
            if loops or token in request.stop_ids or len(token_ids) >= request.max_length:
                stop = check_stop(request, token, loops=loops)
                if stop is not None:
                    request.finish(*stop)
                    tokens = tokens[:count]
                    break
        num_computed = min(len(token_ids) - 1, end)  # the newest is not
        if tokens and num_computed >= request.next_cache_at:
            self._kv.cache(request, num_computed)
        return tokens


def _prompt_logprobs(
    request: Request, step: Step, row: int, result: ModelRunnerOutput
) -> list[TokenLogprobs | None] | None:
    """Entries for prompt positions not reported yet; position 0 has no logprob.

    A resumed request computes its prompt again, but reports no position twice.
    """
    if request.sampling_params.prompt_logprobs is None:
        return None
    if request.num_prompt_logprobs >= request.num_prompt_tokens:
        return None
    first = step.num_computed_tokens[row] + 1  # the position that the row's first token predicts
    known = max(request.num_prompt_logprobs - first, 0)
    entries: list[TokenLogprobs | None] = [*result.prompt_logprobs.get(row, ())][known:]
    if request.num_prompt_logprobs == 0:
        entries.insert(0, None)
    request.num_prompt_logprobs += len(entries)
    return entries or None


def _output(
    request: Request,
    tokens: list[int],
    logprobs: list[TokenLogprobs] | None,
    prompt_logprobs: list[TokenLogprobs | None] | None,
) -> EngineCoreOutput:
    output = EngineCoreOutput(
        request_id=request.request_id,
        new_token_ids=tokens,
        new_logprobs=logprobs,
        new_prompt_logprobs=prompt_logprobs,
        finish_reason=request.finish_reason,
        stop_reason=request.stop_reason,
    )
    if request.has_news:
        output.events = request.events
        output.num_cached_tokens = request.num_cached_tokens
        request.events = request.num_cached_tokens = None
        request.has_news = False
    return output
