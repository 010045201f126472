"""Steering: leads one text to a valid end before its tokens are used up."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from octavo.structured_output.completion import CompletionSearch
from octavo.structured_output.interface import Grammar

MIN_ZONE = 128  # tokens
ZONE_FACTOR = 4  # times the shortest answer
RETRY_AFTER = 16  # tokens without a way, until one is looked for again


class Steering:
    """Knows a way to end the text, the plan, whenever few tokens are left.

    In the last tokens (`zone`) every sampled token is looked at before it becomes part of the text:
    one after which no way to an end is known that fits is dropped, and the plan's next token stands
    in its place. Where the plan needs all tokens that are left, nothing else may come. So a text
    with a plan never loses it, and the plan ends it in time.
    """

    def __init__(
        self,
        search: CompletionSearch,
        shortest: Sequence[int] | None,
        barred: Collection[int],
        reserve: int,
    ) -> None:
        """`shortest`: a whole text, if one is known; `barred`: tokens that can't be within a text.

        `reserve`: tokens kept for the end of the text, 1 or 0.
        """
        self._search = search
        self._barred = barred
        self._reserve = reserve
        self._plan: list[int] | None = None
        if shortest is not None and set(shortest).isdisjoint(barred):
            self._plan = list(shortest)
        self._next: tuple[int, list[int] | None] | None = None  # a vetted token, the plan after it
        self._corrected = False
        self._narrow = False
        self.closing: list[int] = []  # what comes next for certain, because nothing else fits
        self._search_below = 1 << 62  # tokens left
        self._zone = max(MIN_ZONE, ZONE_FACTOR * len(self._plan or ()))

    def follow(self, tokens: Sequence[int]) -> None:
        """The text goes on with these."""
        if not tokens:
            return
        plan, vetted = self._plan, self._next
        self._corrected, self._next, count = False, None, len(tokens)
        if vetted is not None and [vetted[0]] == list(tokens):
            self._plan = vetted[1]
        else:
            known = plan is not None and plan[:count] == list(tokens)
            self._plan = plan[count:] if plan is not None and known else None

    def only(self, grammar: Grammar, left: int) -> list[int] | None:
        """What must come next if any other token could leave the text without an end.

        `left`: tokens that may still come. [one token], [] for an end, None where there is a
        choice, or no way is known.
        """
        self._narrow, self.closing = False, []
        if left > self._zone:
            return None
        if self._plan is None and left < self._search_below:
            self._plan = self._find(grammar, left)
            if self._plan is None:
                self._search_below = left - RETRY_AFTER
        plan = self._plan
        if plan is None:
            return None
        if len(plan) + self._reserve >= left:
            self.closing = plan.copy()
        elif not self._corrected:
            return None
        self._narrow = True
        return plan[:1]

    def allows(self, grammar: Grammar, token: int, left: int) -> bool:
        """Whether `token`, sampled and not yet part of the text, leaves a way to an end.

        `left`: tokens that may come after it. If False, `only` gives what is to stand in its place.
        """
        plan = self._plan
        if self._narrow or left + 1 > self._zone or plan is None:
            return True
        if plan[:1] == [token]:
            self._next = token, plan[1:]
            return True
        after = grammar.copy()
        after.accept([token])
        found: list[int] | None = plan
        if len(plan) + self._reserve > left or not after.completes(plan):
            found = self._find(after, left)
        self._corrected = found is None
        self._next = None if found is None else (token, found)
        return found is not None

    def _find(self, grammar: Grammar, left: int) -> list[int] | None:
        most = left - self._reserve
        return self._search.find(grammar, most, self._barred) if most >= 0 else None
