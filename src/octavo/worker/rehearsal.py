"""A rehearsal of the start without a device: the real steps over tensors without memory."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy.typing as npt
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.overrides import TorchFunctionMode

from octavo.checkpoints.model_files import ModelFiles
from octavo.config.octavo_config import OctavoConfig
from octavo.model_loader.loader import LOADERS, Reader
from octavo.models.interfaces import Model
from octavo.platforms.interface import Event, MemoryUse
from octavo.types.sampling_params import SamplingParams
from octavo.utils.logging import get_logger
from octavo.worker.kv_cache import smallest_cache
from octavo.worker.step import StepPlan
from octavo.worker.warmup import decode_plan
from octavo.worker.worker import Worker

logger = get_logger(__name__)

_MULTIPROCESSORS = 132  # sizes grids, not code
_DEVICE_BYTES = 1 << 40
COMPILER = "torch._dynamo"
MEETINGS = 5  # steps of a shape after which it is captured, if ever
# Ways to sample that take kernels of their own.
_SAMPLING = (
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=1.0, top_p=0.9, top_k=50),
    SamplingParams(temperature=1.0, min_p=0.1),
    SamplingParams(temperature=1.0, repetition_penalty=1.1, presence_penalty=0.5),
)


class RehearsalPlatform:
    """A CUDA device on which nothing happens."""

    def __init__(self) -> None:
        self.device = torch.device("cuda", 0)

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes: plenty."""
        return _DEVICE_BYTES, _DEVICE_BYTES

    def memory_use(self) -> MemoryUse:
        """Tensors have no memory."""
        return MemoryUse(0, 0, 0, 0)

    def forget_peak(self) -> None:
        """There is none."""

    def host_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A tensor that is as little there as the others."""
        return torch.empty(shape, dtype=dtype)

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A tensor of the device."""
        return torch.empty(shape, dtype=dtype, device=self.device)

    @contextlib.contextmanager
    def copy_stream(self) -> Iterator[None]:
        """There are no streams."""
        yield

    @contextlib.contextmanager
    def own_stream(self) -> Iterator[None]:
        """There are no streams."""
        yield

    def wait_for_copies(self) -> None:
        """Nothing is copied."""

    def record_event(self) -> Event:
        """An event that has happened."""
        return _Nothing()

    def synchronize(self) -> None:
        """Nothing is queued."""


class NoWeights:
    """A loader that leaves the parameters as they are."""

    def load(self, model: Model, files: ModelFiles, reader: Reader | None = None) -> None:
        """See ModelLoader."""


UNREAD: Any = "rehearsal"  # a load format that nobody can ask for


class Rehearsal:
    """The runner of a configured model, with as many layers as there are kinds of them.

    Kernels are launched with the arguments that a start on the device would give them; whoever
    rehearses sees to it that the launches are only noted.
    """

    def __init__(self, config: OctavoConfig) -> None:
        self._config = shortened(config)
        self._failed: set[str] = set()

    def run(self) -> Iterator[bool]:
        """Rehearse; yields True when the kernels of the start have been launched, then False.

        It does so after each of the steps that may follow: the caller has other things to do too.

        Parts that can't be rehearsed are left out.
        """
        skip_compiler()
        LOADERS.register(UNREAD, NoWeights)
        capability = self._config.device.capability or (0, 0)
        with _pretended_cuda(capability), _fake_tensors():
            worker = Worker(self._config, platform=RehearsalPlatform())
            self._attempt("profiling", worker.available_kv_memory)
            cache = smallest_cache(self._config)
            self._attempt("warm-up", lambda: worker.initialize_kv_cache(cache))
            yield True
            for plan in later_plans(self._config):
                # Several times, for graphs that are captured only when a shape keeps coming back.
                for _ in range(1 if plan.plain_decode else MEETINGS):
                    self._attempt(
                        f"a step of {plan.shape}", lambda plan=plan: worker.run_made_up(plan)
                    )
                yield False

    def _attempt(self, what: str, action: Any) -> None:
        try:
            action()
        except Exception as error:
            logger.debug("can't rehearse %s: %s", what, error, exc_info=True)
            self._failed.add(what)

    @property
    def failed(self) -> list[str]:
        """What could not be rehearsed."""
        return sorted(self._failed)


def shortened(config: OctavoConfig) -> OctavoConfig:
    """The same model with only the first layers, one at least of each kind, and no weights."""
    arch = config.model.arch
    per_layer = {
        field.name: value
        for field in dataclasses.fields(arch)
        if isinstance(value := getattr(arch, field.name), tuple) and len(value) == arch.num_layers
    }
    kinds = list(zip(*per_layer.values(), strict=True))
    count = max(map(kinds.index, set(kinds))) + 1
    cut: dict[str, Any] = {name: value[:count] for name, value in per_layer.items()}
    short = dataclasses.replace(arch, num_layers=count, **cut)
    return dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, arch=short),
        # What torch's compiler makes of the rest is no kernel of ours.
        compilation=dataclasses.replace(config.compilation, compilation_mode="NONE"),
        load=dataclasses.replace(config.load, load_format=UNREAD),
    )


def later_plans(config: OctavoConfig) -> Iterator[StepPlan]:
    """Steps that may follow a start: every graph's size, and the ways to sample."""
    budget, most = config.scheduler.max_num_batched_tokens, config.scheduler.max_num_seqs
    for rows in config.compilation.cudagraph_capture_sizes:
        if rows <= most:
            yield decode_plan(rows, SamplingParams(temperature=0.0))
    for params in _SAMPLING:
        for rows in (1, 5, 16):
            if rows <= most:
                yield decode_plan(rows, params)
    for tokens in (3, 24, 100, 192, 500, 1000, 1024, 2500, budget - 1, budget):
        for rows in (1, 2, 16, 37):
            if rows <= min(most, tokens // 2) and tokens <= budget:
                yield StepPlan.dummy(tokens, rows)


class _NoDriver(TorchFunctionMode):
    """Leaves out what asks the driver: pinning host memory, and bringing values to the device."""

    def __torch_function__(
        self,
        func: Any,
        kinds: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is torch.Tensor.pin_memory:
            return args[0]
        given = {k: v for k, v in (kwargs or {}).items() if k != "pin_memory"}
        device = torch.device(given.get("device") or "cpu")
        if func in (torch.tensor, torch.as_tensor) and device.type != "cpu":
            with unset_fake_temporarily():
                host = torch.tensor(args[0], dtype=given.get("dtype"))
            return torch.empty(tuple(host.shape), dtype=host.dtype, device=device)
        return func(*args, **given)


class _Nothing:
    """A stream, event or graph of the pretended device: every method does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None

    def synchronize(self) -> None:
        """Nothing to wait for."""


@contextlib.contextmanager
def _pretended_cuda(capability: tuple[int, int]) -> Iterator[None]:
    """torch.cuda as it would answer with a device there."""
    device = types.SimpleNamespace(
        multi_processor_count=_MULTIPROCESSORS,
        major=capability[0],
        minor=capability[1],
        total_memory=_DEVICE_BYTES,
    )
    answers: dict[str, Any] = {
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "get_device_capability": lambda *args: capability,
        "get_device_properties": lambda *args: device,
        "is_current_stream_capturing": lambda: False,
        "synchronize": lambda *args: None,
        "current_stream": _Nothing,
        "Stream": _Nothing,
        "Event": _Nothing,
        "CUDAGraph": _Nothing,
        "graph_pool_handle": lambda: (0, 0),
        "graph": lambda *args, **kwargs: contextlib.nullcontext(),
        "stream": lambda *args: contextlib.nullcontext(),
    }
    with contextlib.ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(_replaced(torch.cuda, name, answer))
        yield


@contextlib.contextmanager
def _fake_tensors() -> Iterator[None]:
    """Tensors made in the body have no memory; numpy sees zeros in them."""

    def data_ptr(tensor: FakeTensor) -> int:
        # Blocks begin at address 0, which is as aligned as those of an allocator.
        return int(tensor.storage_offset()) * tensor.element_size()

    def numpy(tensor: FakeTensor) -> npt.NDArray[Any]:
        with unset_fake_temporarily():
            return torch.zeros(tuple(tensor.shape), dtype=tensor.dtype).numpy()

    with (
        _replaced(FakeTensor, "data_ptr", data_ptr),
        _replaced(FakeTensor, "numpy", numpy),
        _NoDriver(),
        FakeTensorMode(allow_non_fake_inputs=True),
    ):
        yield


def skip_compiler() -> None:
    """Have this process do without torch's own compiler, whose import takes seconds.

    Fake tensors read its settings and exempt themselves from it; nothing here is compiled by it.
    """
    found = importlib.util.find_spec(COMPILER)
    if COMPILER in sys.modules or found is None:
        return
    package: Any = types.ModuleType(COMPILER)
    package.__path__ = list(found.submodule_search_locations or ())
    package.disable = lambda function, *args, **kwargs: function
    sys.modules[COMPILER] = torch._dynamo = package


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    missing = object()
    before = vars(owner).get(name, missing)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is missing:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
