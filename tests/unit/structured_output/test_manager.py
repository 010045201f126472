"""GrammarManager: compiling in the background, budgets, the cache."""

from __future__ import annotations

import threading
import time

import pytest

from octavo.structured_output.interface import Grammar, GrammarBackend, GrammarError
from octavo.structured_output.manager import MAX_CACHED, GrammarManager
from octavo.types.sampling_params import ReasoningMarks, StructuredOutputsParams


class Words(Grammar):
    def __init__(self, text):
        self.text = text

    def copy(self):
        return Words(self.text)

    def accept(self, token_ids):
        pass

    @property
    def may_end(self):
        return True

    def completes(self, token_ids):
        return True

    @property
    def error(self):
        return None

    def forced(self):
        return []


class Backend(GrammarBackend):
    """Compiles when it is let; a text decides how that ends."""

    def __init__(self):
        self.let = threading.Event()
        self.let.set()
        self.compiled = []

    @staticmethod
    def check(spec):
        pass

    def compile(self, spec):
        self.let.wait(10)
        self.compiled.append(spec.regex)
        if spec.regex == "bad":
            raise GrammarError("bad", "regex")
        if spec.regex == "bug":
            raise KeyError("surprise")
        return Words(spec.regex)

    def fill(self, grammars, masks):
        masks[:] = 1


def spec(text, **fields):
    return StructuredOutputsParams(regex=text, **fields)


@pytest.fixture
def backend():
    backend = Backend()
    yield backend
    backend.let.set()


@pytest.fixture
def manager(backend):
    return GrammarManager(lambda: backend, budget=5.0, num_threads=1)


def take(manager, count):
    found = {}
    end = time.monotonic() + 10
    while len(found) < count and time.monotonic() < end:
        manager.wait()
        found |= dict(manager.take())
    return found


def test_grammars_come_and_later_ones_from_the_cache(manager, backend):
    manager.start("1", spec("a"))
    manager.start("2", spec("a"))
    manager.start("3", spec("b"))
    found = take(manager, 3)
    assert [found[name].text for name in "123"] == ["a", "a", "b"]
    assert found["1"] is not found["2"]
    manager.start("4", spec("a", reasoning=ReasoningMarks(["x"], ["y"])))
    assert manager.has_news
    assert dict(manager.take())["4"].text == "a"
    assert backend.compiled == ["a", "b"]
    assert not manager.busy


def test_a_failure_belongs_to_its_request(manager):
    for name in ("bad", "good", "bug"):
        manager.start(name, spec(name))
    found = take(manager, 3)
    assert found["good"].text == "good"
    assert isinstance(found["bad"], GrammarError)
    assert isinstance(found["bug"], GrammarError)
    assert "surprise" in str(found["bug"])


def test_one_that_takes_too_long_fails_and_does_not_come_later(backend):
    woken = threading.Event()
    manager = GrammarManager(lambda: backend, budget=0.05, num_threads=1, on_ready=woken.set)
    backend.let.clear()
    manager.start("slow", spec("a"))
    assert woken.wait(10)
    found = take(manager, 1)
    assert "within 0.05 s" in str(found["slow"])
    backend.let.set()
    while not backend.compiled:
        time.sleep(0.001)
    assert manager.take() == []


def test_what_nobody_waits_for_is_not_begun(manager, backend):
    backend.let.clear()
    manager.start("first", spec("a"))
    manager.start("left", spec("b"))
    manager.start("stays", spec("c"))
    manager.cancel("left")
    manager.cancel("unknown")
    backend.let.set()
    assert take(manager, 2).keys() == {"first", "stays"}
    assert backend.compiled == ["a", "c"]
    manager.start("again", spec("a"))
    manager.cancel("again")
    assert manager.take() == []


def test_the_cache_is_bounded(manager, backend):
    for number in range(MAX_CACHED + 1):
        manager.start(str(number), spec(f"a{number}"))
    take(manager, MAX_CACHED + 1)
    manager.start("new", spec(f"a{MAX_CACHED}"))
    manager.start("old", spec("a0"))
    assert take(manager, 2).keys() == {"new", "old"}
    assert backend.compiled.count("a0") == 2
    assert backend.compiled.count(f"a{MAX_CACHED}") == 1


def test_a_compiled_grammar_is_shown_before_anybody_has_it():
    shown = []
    manager = GrammarManager(
        Backend, budget=10, on_compiled=lambda spec, grammar: shown.append((spec.regex, grammar))
    )
    manager.start("a", StructuredOutputsParams(regex="x"))
    manager.start("b", StructuredOutputsParams(regex="bad"))
    found = {}
    while len(found) < 2:
        manager.wait()
        found |= dict(manager.take())
    assert [(text, grammar.text) for text, grammar in shown] == [("x", found["a"].text)]
