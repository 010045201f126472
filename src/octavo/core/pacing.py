"""StepPacer: how many prompt tokens a step may take without keeping running requests waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from octavo.utils.misc import round_up

FLOOR_TOKENS = 256  # prompt tokens a step may always take, so that prompts are never starved
GRANULARITY = 128  # tokens: steps come in sizes that tiles of kernels fill
FIRST_GUESS_TOKENS = 1024  # while no step has been measured
_UNLIMITED = 1 << 30

# Scales of the features, which make the three parts of a step's time alike in size.
_PROMPT_SCALE = 1 / 1024
_DECODE_SCALE = 1 / 64

_MEMORY = 0.97  # weight of a measurement after each later one: about 33 count
_INERTIA = 0.01  # pull to the last estimate, which decides where nothing was measured
_SWEEPS = 8
_TRUSTED_AFTER = 8  # measurements
_MAX_SURPRISE = 0.3  # share of the expected time by which a single measurement may count as off
_SPREAD_MEMORY = 0.95
_MIN_RESERVE, _MAX_RESERVE = 0.05, 1.0  # shares of the time aimed at


class Pacer(Protocol):
    """Told of every step; tokens are those of its prompt parts and of its decode rows."""

    def limit(self, num_decode_tokens: int) -> int:
        """The most prompt tokens for a step with this many (not 0) tokens of decode rows."""
        ...

    def launched(self, num_prompt_tokens: int, num_decode_tokens: int) -> None:
        """A step goes to the device, which computes steps in this order."""
        ...

    def finished(self) -> None:
        """The results of the oldest step have come."""
        ...


class Unpaced:
    """Steps are limited by their token budget alone."""

    def limit(self, num_decode_tokens: int) -> int:
        """See Pacer."""
        return _UNLIMITED

    def launched(self, num_prompt_tokens: int, num_decode_tokens: int) -> None:
        """See Pacer."""

    def finished(self) -> None:
        """See Pacer."""


class StepTimes:
    """Learns seconds = fixed + per prompt token + per decode token, none of them negative.

    Least squares of relative errors, in which old measurements fade and the last estimate stands
    where new ones say nothing (a thousand steps without prompts don't change what a prompt token
    costs). A slow step weighs little by its length alone; one far from what was expected is
    clipped, so an outlier moves the estimate no more than a bit and a lasting change gets through.
    """

    def __init__(self) -> None:
        self.parts = [0.0, 0.0, 0.0]  # seconds per unit of each feature
        self.spread = 0.0  # mean relative error of steps with prompt tokens
        self._count = 0
        self._matrix = [[0.0] * 3 for _ in range(3)]
        self._vector = [0.0] * 3

    @property
    def known(self) -> bool:
        """Whether a step with prompt tokens has been measured."""
        return self.parts[1] > 0.0

    def expect(self, num_prompt_tokens: int, num_decode_tokens: int) -> float:
        """Seconds of a step."""
        fixed, prompt, decode = self.parts
        return (
            fixed
            + prompt * (num_prompt_tokens * _PROMPT_SCALE)
            + decode * (num_decode_tokens * _DECODE_SCALE)
        )

    def observe(self, num_prompt_tokens: int, num_decode_tokens: int, seconds: float) -> None:
        """Learn from a step that took `seconds`."""
        features = (1.0, num_prompt_tokens * _PROMPT_SCALE, num_decode_tokens * _DECODE_SCALE)
        expected = self.expect(num_prompt_tokens, num_decode_tokens)
        if self._count >= _TRUSTED_AFTER:
            bound = max(_MAX_SURPRISE, 4.0 * self.spread) * expected
            seconds = min(max(seconds, expected - bound), expected + bound)
            if num_prompt_tokens:
                error = abs(seconds - expected) / expected
                self.spread += (1.0 - _SPREAD_MEMORY) * (error - self.spread)
        self._count += 1
        weight = max(seconds, expected, 1e-6) ** -2
        matrix, vector = self._matrix, self._vector
        for i in range(3):
            vector[i] = _MEMORY * vector[i] + weight * features[i] * seconds
            for j in range(3):
                matrix[i][j] = _MEMORY * matrix[i][j] + weight * features[i] * features[j]
        self._solve()

    def _solve(self) -> None:
        """A few sweeps of coordinate descent from the last estimate.

        Prompt tokens come first: a single measurement of a prompt is taken to be their cost.
        """
        matrix, vector, parts = self._matrix, self._vector, self.parts
        inertia = _INERTIA * matrix[0][0]
        anchor = parts.copy()
        for _ in range(_SWEEPS):
            for i in (1, 0, 2):
                row = matrix[i]
                others = row[0] * parts[0] + row[1] * parts[1] + row[2] * parts[2]
                rest = vector[i] + inertia * anchor[i] - others + row[i] * parts[i]
                parts[i] = max(rest / (row[i] + inertia), 0.0)


class StepPacer:
    """Keeps steps with decode rows within a target by taking prompts in smaller parts.

    What a stream's reader waits for the next token is the length of a step. A step's length on
    the device is the time between its results and those of the step before, or its launch if
    that was later, so it is right for any number of steps in flight.
    """

    def __init__(self, target: float, clock: Callable[[], float]) -> None:
        """`target`: seconds, above 0. `clock`: seconds that never go back."""
        self._target = target
        self._clock = clock
        self._times = StepTimes()
        self._in_flight: deque[tuple[float, int, int]] = deque()
        self._last_result = float("-inf")

    def limit(self, num_decode_tokens: int) -> int:
        """See Pacer; with the decode tokens it makes a multiple of GRANULARITY."""
        times = self._times
        num_tokens = FIRST_GUESS_TOKENS
        if times.known:
            # Three mean errors below the target, so that about one step in a hundred is above.
            reserve = min(max(3.0 * times.spread, _MIN_RESERVE), _MAX_RESERVE)
            room = self._target / (1.0 + reserve) - times.expect(0, num_decode_tokens)
            num_tokens = min(int(room / (times.parts[1] * _PROMPT_SCALE)), _UNLIMITED)
        fitting = (num_decode_tokens + num_tokens) // GRANULARITY * GRANULARITY
        least = round_up(num_decode_tokens + FLOOR_TOKENS, GRANULARITY)
        return max(fitting, least) - num_decode_tokens

    def launched(self, num_prompt_tokens: int, num_decode_tokens: int) -> None:
        """See Pacer."""
        self._in_flight.append((self._clock(), num_prompt_tokens, num_decode_tokens))

    def finished(self) -> None:
        """See Pacer."""
        launched, num_prompt_tokens, num_decode_tokens = self._in_flight.popleft()
        now = self._clock()
        seconds = now - max(launched, self._last_result)
        self._last_result = now
        self._times.observe(num_prompt_tokens, num_decode_tokens, seconds)
