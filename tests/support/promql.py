"""PromQL, as much of it as dashboards and alert rules use: a parser that finds the metrics' names.

The language: https://prometheus.io/docs/prometheus/latest/querying/basics/. What it cannot read
raises ValueError with the place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w:]))
  | (?P<duration>\d+(?:ms|[smhdwy])(?![\w:])|\$__rate_interval|\$__interval)
  | (?P<name>[a-zA-Z_:][\w:]*)
  | (?P<text>"(?:[^"\\]|\\.)*")
  | (?P<match>=~|!~|!=(?=\s*"))
  | (?P<operator>==|!=|>=|<=|[-+*/%^<>=])
  | (?P<sign>[(){}\[\],])
)""",
    re.VERBOSE,
)
AGGREGATIONS = frozenset({"sum", "avg", "min", "max", "count"})
FUNCTIONS = {  # name -> whether its last argument is a range
    **dict.fromkeys(("rate", "increase", "deriv", "avg_over_time", "min_over_time"), True),
    **dict.fromkeys(("histogram_quantile", "clamp_min", "absent", "vector"), False),
}
BINARY = frozenset({"==", "!=", ">=", "<=", "<", ">", "+", "-", "*", "/", "%", "^"})
SETS = frozenset({"and", "or", "unless"})
GROUPS = frozenset({"by", "without"})


@dataclass
class Selected:
    """One selector: a metric and what its labels must be."""

    metric: str
    labels: dict[str, str] = field(default_factory=dict)


@dataclass
class Query:
    """What an expression asks for."""

    selected: list[Selected]
    grouped_by: set[str]


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        place = 0
        while text[place:].strip():
            found = TOKEN.match(text, place)
            if found is None:
                raise ValueError(f"cannot read {text[place : place + 30]!r} in {text!r}")
            kind = found.lastgroup or ""
            self._tokens.append((kind, found[kind]))
            place = found.end()
        self._place = 0
        self.query = Query([], set())

    def parse(self) -> Query:
        self._expression()
        if self._place < len(self._tokens):
            raise self._wrong("the end")
        return self.query

    def _next(self) -> tuple[str, str]:
        return self._tokens[self._place] if self._place < len(self._tokens) else ("end", "")

    def _take(self, *wanted: str) -> str:
        """The next token, of a kind or with a text that is wanted."""
        kind, text = self._next()
        if kind not in wanted and text not in wanted:
            raise self._wrong(" or ".join(wanted))
        self._place += 1
        return text

    def _wrong(self, wanted: str) -> ValueError:
        return ValueError(f"wanted {wanted}, found {self._next()[1]!r} in {self._text!r}")

    def _expression(self) -> None:
        """Operators all alike: who is first changes no name."""
        self._operand()
        while self._next()[1] in BINARY | SETS:
            self._place += 1
            self._operand()

    def _operand(self) -> None:
        kind, text = self._next()
        if kind == "number":
            self._place += 1
        elif text == "(":
            self._in_brackets()
        elif text in AGGREGATIONS:
            self._place += 1
            self._grouping()
            self._in_brackets()
            self._grouping()
        elif text in FUNCTIONS:
            self._call()
        else:
            self._selector(self._take("name"))

    def _in_brackets(self) -> None:
        self._take("(")
        self._expression()
        self._take(")")

    def _grouping(self) -> None:
        if self._next()[1] not in GROUPS:
            return
        self._place += 1
        self._take("(")
        while self._next()[1] != ")":
            self.query.grouped_by.add(self._take("name"))
            if self._next()[1] != ")":
                self._take(",")
        self._take(")")

    def _call(self) -> None:
        needs_range = FUNCTIONS[self._take("name")]
        self._take("(")
        self._expression()
        while self._next()[1] == ",":
            self._place += 1
            self._expression()
        if needs_range != (self._tokens[self._place - 1][1] == "]"):
            raise self._wrong("a range" if needs_range else "no range")
        self._take(")")

    def _selector(self, metric: str) -> None:
        selected = Selected(metric)
        self.query.selected.append(selected)
        if self._next()[1] == "{":
            self._place += 1
            while self._next()[1] != "}":
                name = self._take("name")
                how = self._take("match", "=")
                value = self._take("text")[1:-1]
                selected.labels[name] = value if how == "=" else ""
                if self._next()[1] != "}":
                    self._take(",")
            self._take("}")
        if self._next()[1] == "[":
            self._place += 1
            self._take("duration")
            self._take("]")


def parse(expression: str) -> Query:
    """The selectors and labels of an expression. Raises ValueError."""
    return _Parser(expression).parse()
