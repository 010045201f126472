"""Answer: what came of a request, whoever computed it, and a readable account of differences."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.types.outputs import PositionLogprobs, RequestOutput

LOGPROB_TOLERANCE = 1e-4

# Token id -> (log-probability, rank).
Position = dict[int, tuple[float, int]]


@dataclass
class Sequence:
    """One of a request's n sequences."""

    token_ids: list[int]
    text: str
    finish_reason: str | None
    stop_reason: int | str | None = None
    logprobs: list[Position] | None = None
    # Per token: how far behind in logits the second choice came, if that is known.
    gaps: list[float] = field(default_factory=list)


@dataclass
class Answer:
    """What came of one request."""

    name: str
    sequences: list[Sequence]
    prompt_logprobs: list[Position | None] | None = None
    error: str | None = None

    @classmethod
    def of(cls, name: str, output: RequestOutput) -> Answer:
        """The answer that an engine gave."""
        sequences = [
            Sequence(
                token_ids=list(made.token_ids),
                text=made.text,
                finish_reason=made.finish_reason,
                stop_reason=made.stop_reason,
                logprobs=None
                if made.logprobs is None
                else [_position(entry) for entry in made.logprobs],
            )
            for made in output.outputs
        ]
        prompt = output.prompt_logprobs
        if prompt is not None:
            prompt = [None if entry is None else _position(entry) for entry in prompt]
        return cls(name, sequences, prompt, output.error)


def assert_same(expected: list[Answer], actual: list[Answer], what: str) -> None:
    """Every answer is as expected; the failure names each difference and where it begins."""
    assert [answer.name for answer in expected] == [answer.name for answer in actual]
    problems = {
        mine.name: found
        for wanted, mine in zip(expected, actual, strict=True)
        if (found := differences(wanted, mine))
    }
    lines = [f"{len(problems)} of {len(expected)} requests differ with {what}:"]
    lines += [f"  {name}: {problem}" for name, found in problems.items() for problem in found]
    assert not problems, "\n".join(lines)


def differences(expected: Answer, actual: Answer) -> list[str]:
    """How two answers to a request differ, one line each; empty if they do not."""
    if (expected.error is None) != (actual.error is None):
        return [f"error {actual.error!r} instead of {expected.error!r}"]
    if len(expected.sequences) != len(actual.sequences):
        return [f"{len(actual.sequences)} sequences instead of {len(expected.sequences)}"]
    found = []
    for index, pair in enumerate(zip(expected.sequences, actual.sequences, strict=True)):
        found += [f"sequence {index}: {text}" for text in _sequence_differences(*pair)]
    found += _logprob_differences("prompt", expected.prompt_logprobs, actual.prompt_logprobs)
    return found


def _sequence_differences(expected: Sequence, actual: Sequence) -> list[str]:
    if expected.token_ids != actual.token_ids:
        return [_first_difference(expected, actual)]
    found = [
        f"{field_name} {getattr(actual, field_name)!r} instead of {getattr(expected, field_name)!r}"
        for field_name in ("text", "finish_reason", "stop_reason")
        if getattr(actual, field_name) != getattr(expected, field_name)
    ]
    return found + _logprob_differences("output", expected.logprobs, actual.logprobs)


def _first_difference(expected: Sequence, actual: Sequence) -> str:
    pairs = zip(expected.token_ids, actual.token_ids, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if at is None:
        at = min(len(expected.token_ids), len(actual.token_ids))
    gap = f", logits {expected.gaps[at]:.2g} apart" if at < len(expected.gaps) else ""
    return (
        f"tokens part at {at}{gap} ({actual.finish_reason} instead of {expected.finish_reason})\n"
        f"      {actual.token_ids}\n"
        f"      instead of\n"
        f"      {expected.token_ids}"
    )


def _logprob_differences(
    what: str, expected: list[Position | None] | None, actual: list[Position | None] | None
) -> list[str]:
    if expected is None or actual is None:
        return [] if expected is actual else [f"{what} logprobs are {actual}, not {expected}"]
    if len(expected) != len(actual):
        return [f"{len(actual)} {what} logprobs instead of {len(expected)}"]
    for at, (wanted, got) in enumerate(zip(expected, actual, strict=True)):
        if not _near(wanted, got):
            return [f"{what} logprobs at {at} are {got}, not {wanted}"]
    return []


def _near(expected: Position | None, actual: Position | None) -> bool:
    """Equal values within the tolerance; tokens nearer than that may have changed places."""
    if expected is None or actual is None:
        return expected is actual
    pairs = zip(sorted(expected.values()), sorted(actual.values()), strict=False)
    return (
        len(expected) == len(actual)
        and all(abs(a[0] - b[0]) <= LOGPROB_TOLERANCE for a, b in pairs)
        and all(
            abs(actual[token][0] - expected[token][0]) <= LOGPROB_TOLERANCE
            and abs(actual[token][1] - expected[token][1]) <= _rank_slack(expected, token)
            for token in expected.keys() & actual.keys()
        )
    )


def _rank_slack(position: Position, token: int) -> int:
    """How many places a token may have moved: one, if it may have a near neighbour."""
    value, rank = position[token]
    others = [other for t, (other, _) in position.items() if t != token]
    near = any(abs(other - value) <= 2 * LOGPROB_TOLERANCE for other in others)
    return int(near or rank >= len(position))


def _position(entry: PositionLogprobs) -> Position:
    return {token: (found.logprob, found.rank) for token, found in entry.items()}
