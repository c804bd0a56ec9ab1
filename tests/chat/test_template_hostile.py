"""Templates by strangers can neither run away, nor fill the memory, nor look around.

Time is a clock that advances with every look at it, so that endless templates end soon here, too.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from octavo.chat import render_budget
from octavo.chat.template import ChatTemplate
from octavo.errors import CorruptFileError, InvalidRequestError

FREE_CHARACTERS = 2**20
MAX_PEAK_BYTES = 48 * 2**20  # a few copies of the allowance, four bytes a character


class TickingClock:
    """A millisecond goes by whenever somebody looks."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def now_s(self) -> float:
        self._now_s += 0.001
        return self._now_s


@pytest.fixture(autouse=True)
def _small_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render_budget, "FREE_CHARACTERS", FREE_CHARACTERS)
    monkeypatch.setattr(render_budget, "MAX_NODES", 20_000)


@pytest.fixture
def peak_memory() -> Iterator[None]:
    """The test fails if Python objects took much more than the allowance."""
    tracemalloc.start()
    yield
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < MAX_PEAK_BYTES


def attempt(source: str) -> str:
    """Render it to the end."""
    template = ChatTemplate(source, {"bos_token": "<s>"}, clock=TickingClock())
    return template.render([{"role": "user", "content": "Hi"}])


def grown(step: str, start: str = "'x'") -> str:
    """A template that makes its variable larger sixty times."""
    return (
        f"{{% set ns = namespace(x={start}) %}}{{% for i in range(60) %}}{step}{{% endfor %}}"
        "{{ ns.x }}"
    )


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% for a in range(100000) %}{% if a %}{% set x = a %}{% endif %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) ~ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% set a = 'a' * 999 %}{% for i in range(100000) if a in a %}{% endfor %}",
        "{{ range(100000) | map('string') | list | length }}",
        "{{ range(100000) | select('in', [1]) | list | length }}",
        "{{ range(100000) | map('upper') | join | length }}",
    ],
)
def test_an_endless_template_is_stopped_by_time(source: str) -> None:
    """Whatever loops does so through statements, filters or calls, and each looks at the clock."""
    with pytest.raises(InvalidRequestError, match="did not end within 2 s") as caught:
        attempt(source)
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 10000000000 }}",
        "{{ 10000000000 * 'x' }}",
        "{{ ([1] * 1000000000) | length }}",
        "{{ 'a'.ljust(1000000000) }}",
        "{{ 'a'.zfill(1000000000) }}",
        "{{ 'a'.center(width=1000000000) if false else 'a'.center(1000000000) }}",
        "{{ '\t'.expandtabs(1000000000) }}",
        "{{ 'a' | center(1000000000) }}",
        grown("{% set ns.x = ns.x + ns.x %}"),
        grown("{% set ns.x = ns.x ~ ns.x %}"),
        grown("{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}"),
        grown("{% set ns.x = '%s%s' % (ns.x, ns.x) %}"),
        grown("{% set ns.x = '%(a)s%(a)s%(a)s' % {'a': ns.x} %}"),
        grown("{% set ns.x = '%s%s' | format(ns.x, ns.x) %}"),
        grown("{% set ns.x = '{0}{0}'.format(ns.x) %}"),
        grown("{% set ns.x = '{a}{a}'.format_map({'a': ns.x}) %}"),
        grown("{% set ns.x = [ns.x, ns.x] | join %}"),
        grown("{% set ns.x = ns.x.join(['', ns.x, '']) %}"),
        grown("{% set ns.x = ns.x.replace('x', 'xx') %}"),
        grown("{% set ns.x = ns.x | replace('', 'xx') %}"),
        grown("{% set ns.x = ns.x + ns.x %}", "[1]"),
        grown("{% set ns.x = [ns.x, ns.x] %}", "[1]"),
        grown("{% set ns.x = {'a': ns.x, 'b': ns.x} %}"),
        grown("{% set ns.x = dict(a=ns.x, b=ns.x) %}"),
        grown("{% set ns.x = dict.fromkeys(range(99), ns.x) %}"),
        grown("{% set ns.x = [ns.x, ns.x] | map('list') | list %}", "[1]"),
        "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}"
        "{% set ns.l = ns.l + [dict.fromkeys(range(9999))] %}{% endfor %}",
        "{% for i in range(100000) %}" + "static text " * 1000 + "{% endfor %}",
        "{% set x %}{% for i in range(100000) %}" + "text " * 1000 + "{% endfor %}{% endset %}",
        "{% set b = 'a' * 9999 %}{% set ns = namespace(l=[]) %}{% for i in range(9999) %}"
        "{% set ns.l = [ns.l, b[i:]] %}{% endfor %}",
        "{% set b = 'a' * 9999 %}{{ ([b] * 99) | map('upper') | list | length }}"
        "{{ ([b] * 99) | map('title') | list | length }}",
    ],
)
@pytest.mark.usefixtures("peak_memory")
def test_a_template_cannot_make_more_text_than_it_may(source: str) -> None:
    """Each way of making much out of little is counted before it is gone."""
    with pytest.raises(InvalidRequestError, match=r"more text|too large|too many items"):
        attempt(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '%.1000000000f' % 1.0 }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 1000000000) }}",
        "{{ '{a:>1000000000}'.format_map({'a': 1}) }}",
        "{{ 'a\nb' | indent(1000000000) }}",
        "{{ [1, [2]] | tojson(indent=1000000000) }}",
        "{{ [1, 2] | tojson(separators=('x' * 99999, 'y')) }}",
        "{{ 2 | round(-1000000000) }}",
        "{{ 2.5 | round(1000000000, 'ceil') }}",
        "{{ 9 ** 999999999 }}",
        grown("{% set ns.x = ns.x * ns.x %}", "3"),
        "{{ strftime_now('%1000000000d') }}",
        "{{ 'a'.strip('b' * 99999) }}",
        "{{ 'a' | trim('b' * 99999) }}",
        "{{ ([[1]] * 99) | sum(start=[]) }}",
        "{{ (1).to_bytes(1000000000, 'big') }}",
        "{{ 'a'.translate({97: 'b'}) }}",
        "{{ 'a'.encode() }}",
        "{{ range(1000000000000) }}",
        grown("{% set ns.x = (ns.x, ns.x) %}", "([],)"),
        "{{ (1,) * 1000000 }}",
        "{{ lipsum(1000000) }}",
        "{{ [].append(1) }}",
        "{{ messages[0].update({'a': 1}) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ namespace(__init__=1) }}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
        "{% block a %}{{ self.a() }}{% endblock %}",
    ],
)
@pytest.mark.usefixtures("peak_memory")
def test_what_is_not_available_is_refused_in_words(source: str) -> None:
    """A refusal names the limit or the thing."""
    with pytest.raises(InvalidRequestError, match=r"failed in line \d: .{9}"):
        attempt(source)


@pytest.mark.parametrize(
    "source",
    ["{{ [1] | slice(9) | list }}", "{{ [1] | batch(9, 0) | list }}", "{{ 'a' | urlize }}"],
)
def test_filters_that_nobody_has_bounded_are_not_there(source: str) -> None:
    """An allow-list: a filter of a later Jinja is not there either."""
    with pytest.raises(CorruptFileError, match="No filter named"):
        attempt(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''|attr('__class__') }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ raise_exception.__globals__ }}",
        "{{ cycler.__init__ }}",
        "{{ messages[0].items.__self__ }}",
    ],
)
def test_private_attributes_show_as_nothing(source: str) -> None:
    """As in Jinja's own sandbox."""
    assert attempt(source) == ""


def test_comparing_values_that_share_their_parts_is_bounded() -> None:
    """Sixteen doublings of a list of one large text: small to hold, endless to compare."""
    source = (
        "{% set ns = namespace(x=['a' * 9999]) %}{% for i in range(16) %}"
        "{% set ns.x = ns.x[:2000] + ns.x[:2000] %}{% endfor %}{{ ns.x == ns.x[1:] + ns.x[:1] }}"
    )
    with pytest.raises(InvalidRequestError, match="too large"):
        attempt(source)


def test_sorting_values_that_share_their_parts_is_bounded() -> None:
    """The same for filters and tests that compare."""
    for last in ("ns.x | sort", "ns.x | unique | list", "ns.x | max", "ns.x is eq(ns.x)"):
        source = (
            "{% set ns = namespace(x=['a' * 9999]) %}{% for i in range(9) %}"
            "{% set ns.x = ns.x + ns.x %}{% endfor %}{{ " + last + " }}"
        )
        with pytest.raises(InvalidRequestError, match="too large"):
            attempt(source)


def test_noticing_changes_in_a_loop_is_bounded() -> None:
    """loop.changed() compares with what it was given before."""
    source = (
        "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(40) %}"
        "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}"
        "{% for i in [1, 2] %}{{ loop.changed(ns.x if i == 1 else ns.y) }}{% endfor %}"
    )
    with pytest.raises(InvalidRequestError, match="too many items"):
        attempt(source)


def test_a_long_conversation_is_well_within_the_budget() -> None:
    """The allowance grows with the input; only multiplying it is refused."""
    source = (
        "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content | trim + '\n' }}{% endfor %}"
    )
    messages = [{"role": "user", "content": "a" * 5000} for _ in range(400)]
    text = ChatTemplate(source, {}).render(messages)
    assert len(text) == 400 * (5000 + len("<|user|>\n"))


def test_usual_methods_and_filters_are_available() -> None:
    """What templates in the wild use."""
    source = (
        "{{ ' a '.strip() }}{{ 'a,b'.split(',')[1] }}{{ 'ab'.replace('a', 'c', 1) }}"
        "{{ 'x'.startswith(('x', 'y')) }}{{ {'a': 1}.get('b', 2) }}{{ {'a': 1}.items() | list }}"
        "{{ [3, 1] | sort | first }}{{ ['a', 'b'] | join('-') }}{{ 'a' in ['a'] }}"
        "{{ 'Title Case'.title().lower().upper() }}{{ 2 ** 10 }}{{ 7 % 4 }}{{ '%s' % 'p' }}"
        "{{ [1, 2, 3] | sum }}{{ -3 | abs }}{{ 'abc' | truncate(2, true, '') }}{{ [1, 2][::-1] }}"
        "{{ ['x'].index('x') }}{{ 2.567 | round(1) }}{{ 'a' ~ 1 ~ none }}{{ loop is defined }}"
        "{% for x in cycler('p', 'q'), joiner(',') %}{{ loop.cycle('r', 's') }}{% endfor %}"
        "{{ [{'k': 1}, {'k': 2}] | selectattr('k', 'equalto', 2) | map(attribute='k') | list }}"
        "{{ 'é' | e }}{{ '<' | escape }}{{ 'x' | default('y') }}{{ 'abc' | length }}"
    )
    expected = "abcbTrue2[('a', 1)]1a-bTrueTITLE CASE10243p63abc[2, 1]02.6a1NoneFalsers[2]é&lt;x3"
    assert attempt(source) == expected
