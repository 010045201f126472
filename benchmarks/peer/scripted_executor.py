"""An executor for vLLM that runs no model: each request's own prompt comes back, token by token.

`front_end_cost.py --peer PYTHON` has vLLM's engine core use it, in vLLM's own Python environment,
so that the cost of its API process is measured as octavo's is.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import Future

import torch
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import ModelRunnerOutput

STEP_SECONDS = "FRONT_END_STEP_SECONDS"
_CACHE_BYTES = 1 << 33


class ScriptedExecutor(Executor):
    """One token for each scheduled request whose prompt is complete, one step per STEP_SECONDS."""

    def _init_executor(self):
        self._step = float(os.environ[STEP_SECONDS])
        self._due = time.monotonic()
        self._prompts: dict[str, list[int]] = {}
        self._computed: dict[str, int] = {}

    def collective_rpc(self, method, timeout=None, args=(), kwargs=None, non_block=False):
        answer = [self._answer(method, *args)]
        if not non_block:
            return answer
        future = Future()
        future.set_result(answer)
        return future

    def execute_model(self, scheduler_output, non_block=False):
        output = self._run(scheduler_output)
        if not non_block:
            return output
        future = Future()
        future.set_result(output)
        return future

    def check_health(self):
        return

    def _answer(self, method, *args):
        if method == "get_kv_cache_spec":
            # Small blocks of one layer: room for every request at once.
            return {
                "layer": FullAttentionSpec(
                    block_size=16, num_kv_heads=1, head_size=16, dtype=torch.float32
                )
            }
        if method == "determine_available_memory":
            return _CACHE_BYTES
        if method == "get_supported_tasks":
            return ("generate",)
        return None

    def initialize_from_config(self, kv_cache_configs):
        return

    def _run(self, plan):
        for name in plan.finished_req_ids:
            self._prompts.pop(name, None)
            self._computed.pop(name, None)
        for new in plan.scheduled_new_reqs:
            self._prompts[new.req_id] = new.prompt_token_ids
            self._computed[new.req_id] = new.num_computed_tokens
        self._due = max(self._due + self._step, time.monotonic() - self._step)
        time.sleep(max(0.0, self._due - time.monotonic()))
        names = list(plan.num_scheduled_tokens)
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[
                self._advance(name, plan.num_scheduled_tokens[name]) for name in names
            ],
        )

    def _advance(self, name, scheduled):
        prompt = self._prompts[name]
        self._computed[name] += scheduled
        sampled = self._computed[name] - len(prompt)
        return [prompt[sampled % len(prompt)]] if sampled >= 0 else []
