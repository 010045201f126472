"""Messages survive the wire, and nothing else does."""

import pickle

import msgspec
import pytest

from octavo.engine.serial import Codec, EngineFacts, Failure, FrameError, MessageType, UtilityCall
from octavo.types.engine_output import (
    EngineCoreEvent,
    EngineCoreOutput,
    EngineCoreOutputs,
    EventType,
    FinishReason,
    TokenLogprobs,
    UtilityResult,
)
from octavo.types.request import EngineCoreRequest, FinishRequest, MediaSpan
from octavo.types.sampling_params import SamplingParams
from octavo.types.stats import PrefixCacheStats, SchedulerStats

REQUEST = EngineCoreRequest(
    request_id="7:é",
    token_ids=[1, 2, 3, 9],
    num_prompt_tokens=3,
    sampling_params=SamplingParams(
        temperature=0.5,
        stop=["a", "b"],
        logit_bias={5: -1.5},
        bad_words_token_ids=[[1], [2, 3]],
        extra_args={"k": [1, None]},
    ),
    seed=(1 << 63) - 1,
    arrival_time=12.5,
    max_tokens=4,
    cache_salt="s",
    media=(MediaSpan(1, 1, "é"),),
)
OUTPUTS = EngineCoreOutputs(
    outputs=[
        EngineCoreOutput(
            "7:é",
            new_token_ids=[4],
            new_logprobs=[TokenLogprobs([4, 5], [-0.1, -2.0], 1)],
            new_prompt_logprobs=[None, TokenLogprobs([1], [-3.0], 2)],
            finish_reason=FinishReason.STOP,
            stop_reason=9,
            events=[EngineCoreEvent(EventType.QUEUED, 1.0)],
        )
    ],
    scheduler_stats=SchedulerStats(num_running=1, prefix_cache=PrefixCacheStats(1, 2, 3)),
    timestamp=3.5,
    utility_result=UtilityResult(3, {"a": 1}),
)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (MessageType.ADD, [REQUEST]),
        (MessageType.ABORT, ["a", "b"]),
        (MessageType.FINISH, [FinishRequest("a", FinishReason.STOP, 3)]),
        (MessageType.UTILITY, UtilityCall(1, "reset_prefix_cache", [1, "x", None])),
        (MessageType.SHUTDOWN, None),
        (MessageType.READY, EngineFacts(10, 16, 4096, 512, 16)),
        (MessageType.DEAD, Failure("RuntimeError", "boom")),
        (MessageType.OUTPUTS, OUTPUTS),
    ],
)
def test_a_message_comes_back_as_it_was(kind, payload):
    codec = Codec()
    frames = codec.encode(kind, payload)
    assert len(frames) == 2
    assert len(frames[0]) == 1
    assert codec.decode(frames) == (kind, payload)


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"\x00"],
        [b"\x00", b"\x90", b"extra"],
        [b"\xff", b"\xc0"],
        [b"", b"\xc0"],
        [b"ADD", b"\x90"],
        [b"\x00", b""],
        [b"\x00", b"not msgpack"],
        [b"\x00", b"\xc1"],
        [b"\x00", msgspec.msgpack.encode([["id"]])],
        [b"\x00", msgspec.msgpack.encode([1])],
        [b"\x01", msgspec.msgpack.encode("a")],
        [b"\x01", b"\x91\xa1\xff"],  # a string that is not UTF-8
        [b"\x00", b"\x91" * 5000],
        [b"\x00", pickle.dumps(["x"])],
        [pickle.dumps(["x"]), pickle.dumps(["x"])],
    ],
)
def test_anything_else_is_refused(frames):
    with pytest.raises(FrameError):
        Codec().decode(frames)


def test_values_out_of_range_are_refused_on_arrival():
    frames = Codec().encode(MessageType.ADD, [REQUEST])
    plain = msgspec.msgpack.decode(frames[1])
    position = [f.name for f in msgspec.structs.fields(EngineCoreRequest)].index("sampling_params")
    plain[0][position]["temperature"] = 99.0
    with pytest.raises(FrameError, match="temperature"):
        Codec().decode([frames[0], msgspec.msgpack.encode(plain)])
