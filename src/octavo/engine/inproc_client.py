"""InprocClient: the engine core in this process, stepped by `get_output`."""

from __future__ import annotations

from typing import Any

from octavo.config.octavo_config import OctavoConfig
from octavo.engine.core import build_core
from octavo.types.engine_output import EngineCoreOutputs
from octavo.types.errors import OctavoError
from octavo.types.request import EngineCoreRequest, FinishRequest
from octavo.utils import envs


class InprocClient:
    """Direct calls, one thread, no child process: the mode for a debugger."""

    def __init__(self, config: OctavoConfig) -> None:
        envs.use_passive_threads()
        self._core = build_core(config)
        self.facts = self._core.facts

    def add_requests(self, requests: list[EngineCoreRequest]) -> None:
        """See EngineCoreClient."""
        for request in requests:
            self._core.add_request(request)

    def abort_requests(self, request_ids: list[str]) -> None:
        """See EngineCoreClient."""
        self._core.abort_requests(request_ids)

    def finish_requests(self, finishes: list[FinishRequest]) -> None:
        """See EngineCoreClient."""
        self._core.finish_requests(finishes)

    def get_output(self) -> EngineCoreOutputs:
        """Run one step; see EngineCoreClient."""
        self._core.wait()
        return self._core.step().get(0, EngineCoreOutputs())

    def call_utility(self, method: str, *args: Any) -> Any:
        """See EngineCoreClient."""
        try:
            return self._core.call_utility(method, list(args))
        except Exception as error:
            raise OctavoError(f"{type(error).__name__}: {error}") from error

    def shutdown(self) -> None:
        """See EngineCoreClient."""
        self._core.shutdown()
