"""GrammarCheck: off the event loop, several at once."""

from __future__ import annotations

import asyncio

import pytest

from octavo.engine.grammar_check import GrammarCheck
from octavo.structured_output.interface import GrammarError
from octavo.types.sampling_params import StructuredOutputsParams
from support.tiny import fake_config


async def test_verdicts_come_while_the_loop_goes_on():
    check = GrammarCheck(fake_config())
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    ticking = asyncio.create_task(tick())
    try:
        good = [check.check(StructuredOutputsParams(regex=f"a{{{n}}}")) for n in range(1, 12)]
        await asyncio.gather(*good)
        with pytest.raises(GrammarError, match="unclosed"):
            await check.check(StructuredOutputsParams(regex="[a-"))
        assert ticks > 10
    finally:
        ticking.cancel()
        check.shutdown()
