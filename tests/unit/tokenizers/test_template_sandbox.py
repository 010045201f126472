"""Templates that ask for too much are stopped; others are not disturbed."""

import threading
import time

import jinja2.sandbox
import pytest

from octavo.tokenizers.template_sandbox import (
    ChatEnvironment,
    LimitExceeded,
    TemplateLimits,
    TemplateRefusal,
)

HUGE = [
    "{{ 'x' * 1000000000 }}",
    "{{ 1000000000 * 'x' }}",
    "{{ [0] * 1000000000 }}",
    "{{ 10 ** 100000 }}",
    "{% set n = namespace(x=3) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}",
    "{% macro m() %}{% for i in range(9999) %}{{ 'x' * 9999 }}{% endfor %}{% endmacro %}"
    "{% set x = m() %}",
    "{{ 'x' | center(1000000000) }}",
    "{{ 'x'.ljust(1000000000) }}",
    "{{ 'x'.zfill(1000000000) }}",
    "{{ ('x\n' * 10000) | indent(10000) }}",
    "{{ ('a' * 10000).replace('a', 'b' * 10000) }}",
    "{{ ('a' * 10000) | replace('a', 'b' * 10000) }}",
    "{{ ('a' * 10000).translate({97: 'b' * 10000}) }}",
    "{{ range(10000) | join('x' * 10000) }}",
    "{{ ('x' * 10000).join(['a'] * 10000) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '{:{w}}'.format(1, w=1000000000) }}",
    "{{ '{x:1000000000}'.format_map({'x': 1}) }}",
    "{{ [1] | batch(1000000000, 0) | list }}",
    "{{ messages | tojson(indent=1000000000) }}",
]


def render(source, limits=None, **variables):
    environment = ChatEnvironment(limits or TemplateLimits(1_000_000))
    return environment.render_bounded(environment.from_string(source), variables)


@pytest.mark.parametrize("source", HUGE)
def test_growth_is_bounded(source):
    with pytest.raises(LimitExceeded, match=r"it builds a|integer of|format of"):
        render(source, messages=[{}])


ENDLESS = [
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{% set x = range(99999) | sum %}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(50) }}",
    "{% for i in [1, 2] recursive %}{% if loop.depth < 50 %}{{ loop([1, 2]) }}{% endif %}"
    "{% endfor %}",
]


@pytest.mark.parametrize("source", ENDLESS)
def test_time_is_bounded(source):
    before = time.thread_time()
    with pytest.raises(LimitExceeded, match=r"longer than 0\.05 s"):
        render(source, TemplateLimits(max_cpu_seconds=0.05))
    assert time.thread_time() - before < 10  # it would take hours


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% for x in 'abc' %}{{ loop.length }}{{ x }}{{ loop.last }}{% endfor %}", None),
        ("{% for x in [1, 2, 3] | map('string') %}{{ loop.revindex }}{% endfor %}", "321"),
        ("{% for x in absent %}{% else %}none{% endfor %}", "none"),
        ("{% for k, v in {'a': 1}.items() if v %}{{ k }}{{ loop.nextitem }}{% endfor %}", "a"),
        ("{% for x in [[1], []] recursive %}({{ loop(x) if x is sequence }}){% endfor %}", None),
        ("{{ 'a' ~ 1 ~ none ~ absent ~ true }}", "a1NoneTrue"),
        ("{{ [1, 2] | join(', ') }}{{ absent | join('x') }}{{ 'abc' | join('-') }}", "1, 2a-b-c"),
        ("{{ '-'.join(['a', 'b']) }}{{ 'a-b'.replace('-', '+') }}", "a-ba+b"),
        ("{{ 'a\nb' | indent(2) }}", "a\n  b"),
        ("{{ '%s %03d' % ('a', 7) }}{{ '{:>4}'.format('b') }}", "a 007   b"),
        ("{{ 2 ** 10 }} {{ 7 % 4 }} {{ 3 * 4 }} {{ [0] * 2 + [1] }}", "1024 3 12 [0, 0, 1]"),
        ("{{ {'b': 'é<', 'a': [1]} | tojson }}", '{"b": "é<", "a": [1]}'),
        ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}", '{"a":2,"b":1}'),
        ("{% set n = namespace(a=1) %}{% set n.a = n.a + 1 %}{{ n.a }}", "2"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("a{% generation %}{{ 'b' }}{% endgeneration %}c", "abc"),
        ("{% set x %}a{{ 1 }}{% endset %}{{ x | upper }}", "A1"),
    ],
)
def test_ordinary_expressions(source, text):
    """Where no text is given, Jinja's own sandbox is the reference."""
    if text is None:
        text = jinja2.sandbox.ImmutableSandboxedEnvironment().from_string(source).render()
    assert render(source) == text


def test_generic_loop_state_of_lazy_items():
    assert render("{% for x in xs %}{{ loop.length }}{% endfor %}", xs=iter("ab")) == "22"


def test_refusal():
    with pytest.raises(TemplateRefusal, match="no"):
        render("{{ raise_exception('no') }}")


def test_filters_cannot_run_while_compiling():
    environment = ChatEnvironment(TemplateLimits())
    environment.from_string("{{ 'x' | center(1000000000) }}{{ 'x' * 1000000000 }}")


def test_threads_are_measured_by_themselves():
    environment = ChatEnvironment(TemplateLimits(max_cpu_seconds=20.0))
    template = environment.from_string("{% for i in range(n) %}{{ i }}{% endfor %}")
    results = {}

    def work(n):
        results[n] = environment.render_bounded(template, {"n": n})

    threads = [threading.Thread(target=work, args=(n,)) for n in (10, 1000, 2000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: "".join(map(str, range(n))) for n in (10, 1000, 2000)}
