"""IncrementalDetokenizer: new token ids in, new text out; stop strings never shown in part."""

from __future__ import annotations

from octavo.tokenizers.stop_scope import StopScopeReader
from octavo.tokenizers.stop_strings import StopStrings, compile_stops
from octavo.tokenizers.streams import open_stream
from octavo.tokenizers.tokenizer import Tokenizer
from octavo.types.request import EngineCoreRequest


class IncrementalDetokenizer:
    """The text of one sequence as it grows.

    `output_token_ids` are the tokens that belong to the output; after a stop-string match they
    end with the token that completed the match. Without a tokenizer, or with detokenize=False,
    the text stays empty.

    Rules:
    - Text that may turn out to be the beginning of a stop string is held until it does or not.
    - The match that ends first wins; of several that end together, the longest. How tokens were
      grouped into updates changes nothing.
    - A match counts once more than min_tokens tokens are out; one completed earlier is plain text.
    - Text ends before the stop string, or after it with include_stop_str_in_output.
    - Where the parameters have a stop_scope, no stop string is found outside of it.
    - A stop token's text is left out unless include_stop_str_in_output is set (and, if it is a
      special token, skip_special_tokens is not).
    """

    def __init__(self, tokenizer: Tokenizer | None, request: EngineCoreRequest) -> None:
        params = request.sampling_params
        self.output_token_ids: list[int] = []
        self._stream = open_stream(
            tokenizer if params.detokenize else None,
            request.token_ids[: request.num_prompt_tokens],
            params.skip_special_tokens,
        )
        stops = params.stop_strings
        self._stops: StopStrings | None = compile_stops(tuple(stops)) if stops else None
        scope = params.stop_scope if stops else None
        self._scope: StopScopeReader | None = StopScopeReader(scope) if scope else None
        self._include_stop = params.include_stop_str_in_output
        self._min_tokens = params.min_tokens
        self._state = 0  # of the automaton
        self._held = ""  # text that may begin a stop string
        self._given: list[str] = []  # text given out as deltas
        self._new: list[str] = []  # text that may be shown and has not been given out
        self._num_silent = 0  # stop tokens kept out of the text
        self._ended = False

    @property
    def num_output_tokens(self) -> int:
        """Number of tokens that belong to the output."""
        return len(self.output_token_ids)

    @property
    def num_undecided(self) -> int:
        """How many of them a stop string may yet take away, because their text is held back."""
        return 0 if self._stops is None or self._ended else self._stream.num_held

    @property
    def text(self) -> str:
        """All text that may be shown so far."""
        given, new = "".join(self._given), "".join(self._new)
        self._given, self._new = [given], [new] if new else []
        return given + new

    def update(self, new_token_ids: list[int], stop_terminated: bool) -> str | None:
        """Take new tokens; returns the stop string they completed, or None.

        `stop_terminated`: the last of them is a stop token, on which the core ended the request.
        On a match the tokens after it are dropped.
        """
        num_to_feed = len(new_token_ids)
        if stop_terminated and not self._include_stop and num_to_feed:
            num_to_feed -= 1
            self._num_silent = 1
        feed = self._stream.feed
        for position, token_id in enumerate(new_token_ids):
            self.output_token_ids.append(token_id)
            text = feed(token_id) if position < num_to_feed else ""
            if not text:
                continue
            if self._stops is None:
                self._new.append(text)
                continue
            stop, num_tokens = self._add(text, self._stops, self.num_output_tokens)
            if stop is not None:
                del self.output_token_ids[num_tokens:]
                return stop
        return None

    def pass_on(self, new_token_ids: list[int]) -> str:
        """`update` and the delta that follows from it, for streams without stop strings.

        None of the tokens may be the last, and every delta before has been taken.
        """
        self.output_token_ids += new_token_ids
        feed = self._stream.feed
        if len(new_token_ids) == 1:
            text = feed(new_token_ids[0])
        else:
            text = "".join(map(feed, new_token_ids))
        if text:
            self._given.append(text)
        return text

    def get_next_output_text(self, finished: bool, delta: bool) -> str:
        """With `delta` the text that is new since the last call, else all text.

        `finished`: no token follows, so what was held back comes too.
        """
        if finished and not self._ended:
            self._finish()
        if not delta:
            return self.text
        if not self._new:
            return ""
        new = self._new[0] if len(self._new) == 1 else "".join(self._new)
        self._given.append(new)
        self._new = []
        return new

    def _add(self, text: str, stops: StopStrings, num_fed: int) -> tuple[str | None, int]:
        """Add text; returns the stop string that ends in it, and the tokens up to that one."""
        if self._scope is None:
            return self._search(text, stops, num_fed, 0)
        for part, counts, begin in self._scope.split(text):
            if not counts:
                self._show(self._held + part)
                self._held, self._state = "", 0
                continue
            stop, num_tokens = self._search(part, stops, num_fed, begin)
            if stop is not None:
                return stop, num_tokens
        return None, 0

    def _search(
        self, text: str, stops: StopStrings, num_fed: int, begin: int
    ) -> tuple[str | None, int]:
        """Look for a stop string in text that begins at `begin` of what the stream last gave."""
        state, end, stop = stops.scan(self._state, text)
        while stop is not None:
            num_tokens = num_fed - (self._stream.lag(begin + end) if begin + end > 0 else 0)
            if num_tokens > self._min_tokens:
                whole = self._held + text[:end]
                self._show(whole if self._include_stop else whole[: -len(stop)])
                self._held = ""
                self._ended = True
                return stop, num_tokens
            state, end, stop = stops.scan(state, text, end)
        self._state = state
        whole = self._held + text
        shown = len(whole) - stops.depth[state]
        self._show(whole[:shown])
        self._held = whole[shown:]
        return None, 0

    def _finish(self) -> None:
        self._ended = True
        text = self._stream.flush()
        if self._stops is None:
            self._show(text)
            return
        num_fed = self.num_output_tokens - self._num_silent
        stop, _ = self._add(text, self._stops, num_fed) if text else (None, 0)
        rest = self._scope.flush() if self._scope is not None else ""
        if rest and stop is None:
            self._search(rest, self._stops, num_fed, -len(rest))
        self._show(self._held)
        self._held = ""

    def _show(self, text: str) -> None:
        if text:
            self._new.append(text)
