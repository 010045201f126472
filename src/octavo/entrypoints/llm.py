"""LLM: generate text, embed or score offline, for many prompts at once."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
from tqdm import tqdm

from octavo.checkpoints.sharded_files import MAX_SHARD_BYTES
from octavo.config.engine_args import EngineArgs
from octavo.config.model import DEFAULT_MODEL
from octavo.config.octavo_config import default_sampling_params
from octavo.engine.llm_engine import LLMEngine
from octavo.engine.metrics_reader import Metric, read_metrics
from octavo.engine.prompts import Prompt, prompt_list
from octavo.entrypoints.beam_search import search_beams
from octavo.entrypoints.chat_template import load_chat_template
from octavo.entrypoints.pooling_methods import PoolingMethods, Progress
from octavo.entrypoints.reasoning.budget import thinking_marks
from octavo.entrypoints.reasoning.choose import infer_reasoning_parser
from octavo.entrypoints.reasoning.interface import REASONING_PARSERS
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.beam_search import BeamSearchOutput, BeamSearchParams
from octavo.types.errors import ConfigError, RequestError
from octavo.types.outputs import RequestOutput
from octavo.types.request import LoRARequest
from octavo.types.sampling_extras import ThinkingMarks
from octavo.types.sampling_params import RequestOutputKind, SamplingParams

Message = Mapping[str, Any]


class LLM(PoolingMethods):
    """A model ready to generate, embed or score. Keyword arguments are the fields of EngineArgs.

    The engine core runs in a process of its own, which ends with this object or with `shutdown`;
    OCTAVO_ENABLE_MULTIPROCESSING=0 keeps it in this one. Statistics are off unless
    disable_log_stats=False. Raises ConfigError or CheckpointError when the model can't be run.
    """

    def __init__(self, model: str = DEFAULT_MODEL, **kwargs: Any) -> None:
        args = EngineArgs.from_dict({"disable_log_stats": True, **kwargs, "model": model})
        self._engine = LLMEngine.from_engine_args(args)
        self._ids = itertools.count()

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer; raises ConfigError if the engine runs without one."""
        if self._engine.tokenizer is None:
            raise ConfigError("skip_tokenizer_init=True: this engine has no tokenizer")
        return self._engine.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """The model's own defaults (generation_config.json), where it has some."""
        return SamplingParams(**default_sampling_params(self.config))

    def get_metrics(self) -> list[Metric]:
        """Counters, gauges and histograms of the engine; needs disable_log_stats=False."""
        if self.config.observability.disable_log_stats:
            raise ConfigError("no metrics are kept; construct LLM with disable_log_stats=False")
        return read_metrics(self._engine.metrics.registry)

    def reset_prefix_cache(self) -> bool:
        """Forget every cached prefix; False while requests hold blocks."""
        return self._engine.reset_prefix_cache()

    def save_sharded_state(self, path: str, max_size: int = MAX_SHARD_BYTES) -> None:
        """Write the weights as this engine holds them, and all else a start from `path` needs.

        A later start of as many ranks with model=`path` reads them without conversion
        (load_format="sharded_state"). `max_size`: bytes of a file. The weights are loaded a second
        time for it, into RAM.
        """
        self._engine.save_sharded_state(path, max_size)

    def start_profile(self) -> None:
        """Record what host and device do in the steps from now on."""
        self._engine.start_profile()

    def stop_profile(self, folder: str = ".") -> str:
        """End the recording; returns the path of the trace, for ui.perfetto.dev."""
        return self._engine.stop_profile(folder)

    def shutdown(self) -> None:
        """End the engine; safe to call twice."""
        self._engine.shutdown()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: Progress = True,
        lora_request: LoRARequest | None = None,
        priority: Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """One finished output per prompt, in the order of the prompts.

        A prompt is a text, a list of token ids, or a dict with `prompt`, `prompt_token_ids` or
        both. `sampling_params` and `priority` are for all prompts or one for each; without
        parameters, the model's defaults. Raises RequestError if any prompt can't be served;
        then none has run. A request that fails while it runs has finish_reason "error" and
        `error`; the others are complete.
        """
        wanted = prompt_list(prompts)
        params = self._params_for(wanted, sampling_params)
        if priority is not None and len(priority) != len(wanted):
            raise RequestError(
                f"priority has {len(priority)} entries for {len(wanted)} prompts", "priority"
            )
        ids: list[str] = []
        try:
            for index, prompt in enumerate(wanted):
                request_id = str(next(self._ids))
                self._engine.add_request(
                    request_id,
                    prompt,
                    params[index],
                    priority=0 if priority is None else priority[index],
                    lora_request=lora_request,
                )
                ids.append(request_id)
            return self._run(ids, use_tqdm)
        except BaseException:
            self._engine.abort_requests(ids)
            raise

    def beam_search(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: BeamSearchParams,
        *,
        use_tqdm: Progress = False,
    ) -> list[BeamSearchOutput]:
        """The likeliest texts that a search of `beam_width` beams finds, for each prompt in order.

        All beams of all prompts run together, a token at a time; what they have in common is
        computed once where prefix caching is on. Raises RequestError if a prompt can't be served,
        GenerationError if one fails while it runs.
        """

        def generate(prompts: list[list[int]], step: SamplingParams) -> list[RequestOutput]:
            return self.generate(prompts, step, use_tqdm=False)

        return search_beams(self._engine, generate, prompts, params, use_tqdm)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: Progress = True,
        lora_request: LoRARequest | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Like `generate`, for one conversation or a list of them.

        Rendered by `chat_template` (a file or the template itself), else by the engine's. Raises
        RequestError for what the template refuses.
        """
        tokenizer = self.get_tokenizer()
        template = load_chat_template(chat_template or self.config.model.chat_template, tokenizer)
        if template is None:
            raise RequestError("the model has no chat template; give chat_template")
        is_single = not messages or isinstance(messages[0], Mapping)
        conversations = [messages] if is_single else messages
        prompts: list[Prompt] = []
        for conversation in cast(Iterable[Sequence[Message]], conversations):
            text = template.render(
                conversation,
                tools=tools,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                **(chat_template_kwargs or {}),
            )
            # The template has written the special tokens already.
            ids = tokenizer.encode(text, add_special_tokens=False)
            prompts.append({"prompt": text, "prompt_token_ids": ids})
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm, lora_request=lora_request)

    def _params_for(
        self, prompts: list[Prompt], params: SamplingParams | Sequence[SamplingParams] | None
    ) -> list[SamplingParams]:
        if params is None:
            params = self.get_default_sampling_params()
        if isinstance(params, SamplingParams):
            return [self._complete(params)] * len(prompts)
        if isinstance(params, str | Mapping) or not isinstance(params, Sequence):
            raise RequestError(
                f"sampling_params is {type(params).__name__}; give SamplingParams(...), or a list "
                "with one for each prompt",
                "sampling_params",
            )
        if len(params) != len(prompts):
            raise RequestError(
                f"sampling_params has {len(params)} entries for {len(prompts)} prompts",
                "sampling_params",
            )
        return [self._complete(each) for each in params]

    def _complete(self, params: SamplingParams) -> SamplingParams:
        params = _final_only(params)
        if params.thinking_token_budget is not None and params.thinking_marks is None:
            params.thinking_marks = self._thinking_marks
        return params

    @functools.cached_property
    def _thinking_marks(self) -> ThinkingMarks | None:
        """Those of the reasoning parser that the model's chat template tells."""
        tokenizer, model = self._engine.tokenizer, self.config.model
        if tokenizer is None:
            return None
        template = load_chat_template(model.chat_template, tokenizer)
        text = "" if template is None else template.text
        name = infer_reasoning_parser(text, model.arch.architecture)
        return None if name is None else thinking_marks(REASONING_PARSERS.get(name), tokenizer)

    def _run(self, ids: list[str], use_tqdm: Progress) -> list[RequestOutput]:
        outputs: dict[str, RequestOutput] = {}
        make_bar = use_tqdm if callable(use_tqdm) else tqdm
        bar = make_bar(total=len(ids), desc="prompts", disable=not use_tqdm, dynamic_ncols=True)
        num_tokens = 0
        with bar:
            while len(outputs) < len(ids):
                for output in self._engine.step():
                    outputs[output.request_id] = output
                    num_tokens += sum(len(sequence.token_ids) for sequence in output.outputs)
                    elapsed = bar.format_dict["elapsed"]
                    if elapsed:
                        bar.set_postfix_str(f"{num_tokens / elapsed:.1f} tok/s", refresh=False)
                    bar.update()
        return [outputs[request_id] for request_id in ids]


def _final_only(params: SamplingParams) -> SamplingParams:
    if not isinstance(params, SamplingParams):
        raise RequestError(
            f"sampling_params holds {type(params).__name__}; give SamplingParams(...)",
            "sampling_params",
        )
    return msgspec.structs.replace(params, output_kind=RequestOutputKind.FINAL_ONLY)
