"""Plots as SVG text: line charts and stacked bars, written by hand-made code.

Owns: scales, ticks, legends, colours that read on light and on dark pages.
Does not know: what the numbers mean.

A file carries its own style sheet, which follows the reader's colour scheme. Series differ by dash
and mark as well as by colour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 196, 46, 56
MAX_COLOURS = 8
_DASHES = ("", "7 4", "2 3", "9 3 2 3", "12 4", "4 2", "1 4", "6 2 1 2")
# Light and dark variants of eight colours that stay apart for most colour-blind readers.
_LIGHT = ("#0969b2", "#c2410c", "#15803d", "#7c3aed", "#a16207", "#be185d", "#0f766e", "#57606a")
_DARK = ("#5eb1f2", "#fb923c", "#4ade80", "#b794f6", "#facc15", "#f472b6", "#2dd4bf", "#b1bac4")


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart; `lows` and `highs` draw a bar through each point."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    lows: Sequence[float] = ()
    highs: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Bar:
    """One stacked bar: parallel to the names of the chart's parts."""

    name: str
    parts: Sequence[float]


@dataclass(frozen=True, slots=True)
class BarGroup:
    """Bars side by side, one for each name of the chart; 0 where there is no value."""

    name: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from `low` to `high` on pixels from `begin` to `end`."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        """The pixel of a value, kept inside."""
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return self.begin + min(max(share, 0.0), 1.0) * (self.end - self.begin)


def line_chart(
    title: str,
    x_label: str,
    y_label: str,
    series: Sequence[Series],
    *,
    y_limit: float | None = None,
    guide: tuple[str, float] | None = None,
) -> str:
    """A chart with one line for each series. Lines leave through the top at `y_limit`.

    `guide` is a named horizontal line.
    """
    points = [one for one in series if one.xs]
    if not points:
        raise ValueError(f"plot {title!r} has no points")
    highest = y_limit or max(max(one.ys) for one in points)
    y_ticks = ticks(0.0, highest)
    x_ticks = ticks(0.0, max(max(one.xs) for one in points))
    across = Scale(0.0, x_ticks[-1], _LEFT, WIDTH - _RIGHT)
    up = Scale(0.0, y_ticks[-1] if y_limit is None else y_limit, HEIGHT - _BOTTOM, _TOP)
    parts = [*_axes(title, x_label, y_label), *_x_ticks(across, x_ticks)]
    parts += _y_ticks(up, [tick for tick in y_ticks if tick <= up.high * 1.0001])
    if guide is not None:
        parts += _guide(guide[0], up.at(guide[1]))
    for number, one in enumerate(points):
        parts += _line(number, one, across, up)
    colours = [number % MAX_COLOURS for number in range(len(points))]
    names = [one.name if min(one.ys) <= up.high else f"{one.name} (above)" for one in points]
    parts += _legend(names, colours, is_filled=False)
    return _document(title, parts)


def stacked_bars(title: str, y_label: str, part_names: Sequence[str], bars: Sequence[Bar]) -> str:
    """One bar for each entry, from 0 to 100 percent. Parts are shares of 1, the last is grey."""
    if not bars:
        raise ValueError(f"plot {title!r} has no bars")
    up = Scale(0.0, 1.0, HEIGHT - _BOTTOM, _TOP)
    parts = [*_axes(title, "", y_label)]
    parts += _y_ticks(up, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0], as_percent=True)
    pitch = (WIDTH - _LEFT - _RIGHT) / len(bars)
    for place, bar in enumerate(bars):
        left, width, below = _LEFT + pitch * (place + 0.16), pitch * 0.68, 0.0
        for colour, share in zip(_part_colours(len(part_names)), bar.parts, strict=True):
            top, bottom = up.at(below + share), up.at(below)
            below += share
            parts.append(
                f'<rect class="f{colour}" x="{left:.1f}" y="{top:.1f}" '
                f'width="{width:.1f}" height="{max(bottom - top, 0.0):.1f}"/>'
            )
            if bottom - top >= 15:
                middle = (top + bottom) / 2 + 4
                label = f"{share:.1%}" if share < 0.1 else f"{share:.0%}"
                parts.append(_text(left + width / 2, middle, label, "middle", "on"))
        parts += _wrapped(left + width / 2, HEIGHT - _BOTTOM + 16, bar.name)
    parts += _legend(part_names, _part_colours(len(part_names)), is_filled=True)
    return _document(title, parts)


def grouped_bars(title: str, names: Sequence[str], groups: Sequence[BarGroup]) -> str:
    """Groups of bars, each group on a scale of its own: its highest value fills the height.

    The values are written over the bars, so groups of different sizes can stand side by side.
    """
    if not names or not groups:
        raise ValueError(f"plot {title!r} has no bars")
    parts = _axes(title, "", "")
    pitch = (WIDTH - _LEFT - _RIGHT) / len(groups)
    width = pitch * 0.86 / len(names)
    for place, group in enumerate(groups):
        up = Scale(0.0, 1.08 * (max(group.values) or 1.0), HEIGHT - _BOTTOM, _TOP)
        begin = _LEFT + pitch * (place + 0.07)
        for number, value in enumerate(group.values):
            left, top = begin + width * number, up.at(value)
            parts.append(
                f'<rect class="f{number % MAX_COLOURS}" x="{left:.1f}" y="{top:.1f}" '
                f'width="{width * 0.9:.1f}" height="{HEIGHT - _BOTTOM - top:.1f}"/>'
            )
            if value:
                x, shown = left + width * 0.45, f"{value:.0f}"
                turned = f'transform="rotate(-90 {x + 3:.1f} {top - 4:.1f})"'
                parts.append(
                    f'<text class="small" x="{x + 3:.1f}" y="{top - 4:.1f}" {turned}>{shown}</text>'
                )
        middle = begin + width * len(names) / 2
        parts.append(_text(middle, HEIGHT - _BOTTOM + 18, group.name, "middle"))
    colours = [number % MAX_COLOURS for number in range(len(names))]
    parts += _legend(names, colours, is_filled=True)
    return _document(title, parts)


def ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers from `low` to at least `high`, in steps of 1, 2 or 5 times a power of ten."""
    span = (high - low) or 1.0
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(factor * power for factor in (1, 2, 5, 10, 20) if span / (factor * power) <= most)
    count = math.ceil(span / step - 1e-9)
    return [round(low + i * step, 12) for i in range(count + 1)]


def _line(number: int, one: Series, across: Scale, up: Scale) -> list[str]:
    colour = number % MAX_COLOURS
    places = [(across.at(x), up.at(y)) for x, y in _inside(one, up.high)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dash = f' stroke-dasharray="{_DASHES[colour]}"' if _DASHES[colour] else ""
    parts = [f'<polyline class="s{colour}"{dash} points="{path}"/>']
    for x, low, high in zip(one.xs, one.lows, one.highs, strict=False):
        if low < up.high and high > low:
            parts.append(
                f'<line class="s{colour}" x1="{across.at(x):.1f}" x2="{across.at(x):.1f}" '
                f'y1="{up.at(low):.1f}" y2="{up.at(high):.1f}"/>'
            )
    for x, y in zip(one.xs, one.ys, strict=True):
        if y <= up.high:
            parts.append(_mark(colour, across.at(x), up.at(y)))
    return parts


def _inside(one: Series, highest: float) -> list[tuple[float, float]]:
    """The points of a line up to where it leaves the chart, that crossing included."""
    found: list[tuple[float, float]] = []
    for x, y in zip(one.xs, one.ys, strict=True):
        if y <= highest:
            found.append((x, y))
            continue
        if found:
            last_x, last_y = found[-1]
            found.append((last_x + (x - last_x) * (highest - last_y) / (y - last_y), highest))
        break
    return found


def _mark(number: int, x: float, y: float) -> str:
    kind = f'class="f{number}"'
    if number % 3 == 0:
        return f'<circle {kind} cx="{x:.1f}" cy="{y:.1f}" r="3.6"/>'
    if number % 3 == 1:
        return f'<rect {kind} x="{x - 3.2:.1f}" y="{y - 3.2:.1f}" width="6.4" height="6.4"/>'
    return f'<path {kind} d="M{x:.1f} {y - 4.2:.1f} l4 7.2 h-8 z"/>'


def _axes(title: str, x_label: str, y_label: str) -> list[str]:
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    middle = (_TOP + bottom) / 2
    return [
        _text(_LEFT, 24, title, "start", "title"),
        f'<path class="axis" d="M{_LEFT} {_TOP} V{bottom} H{right}"/>',
        _text((_LEFT + right) / 2, HEIGHT - 14, x_label, "middle"),
        f'<text x="18" y="{middle:.1f}" text-anchor="middle" '
        f'transform="rotate(-90 18 {middle:.1f})">{escape(y_label)}</text>',
    ]


def _x_ticks(across: Scale, values: Sequence[float]) -> list[str]:
    bottom = HEIGHT - _BOTTOM
    parts = []
    for value in values:
        x = across.at(value)
        parts.append(f'<path class="grid" d="M{x:.1f} {_TOP} V{bottom}"/>')
        parts.append(_text(x, bottom + 18, f"{value:g}", "middle"))
    return parts


def _y_ticks(up: Scale, values: Sequence[float], *, as_percent: bool = False) -> list[str]:
    parts = []
    for value in values:
        y = up.at(value)
        shown = f"{value:.0%}" if as_percent else f"{value:g}"
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f} H{WIDTH - _RIGHT}"/>')
        parts.append(_text(_LEFT - 8, y + 4, shown, "end"))
    return parts


def _guide(name: str, y: float) -> list[str]:
    right = WIDTH - _RIGHT
    return [
        f'<path class="guide" d="M{_LEFT} {y:.1f} H{right}"/>',
        _text(right - 4, y - 5, name, "end"),
    ]


def _part_colours(num_parts: int) -> list[int]:
    return [*(number % (MAX_COLOURS - 1) for number in range(num_parts - 1)), MAX_COLOURS - 1]


def _legend(names: Sequence[str], colours: Sequence[int], *, is_filled: bool) -> list[str]:
    parts, x = [], WIDTH - _RIGHT + 16
    for number, (name, colour) in enumerate(zip(names, colours, strict=True)):
        y = _TOP + 12 + 21 * number
        if is_filled:
            parts.append(f'<rect class="f{colour}" x="{x}" y="{y - 9}" width="20" height="12"/>')
        else:
            dash = f' stroke-dasharray="{_DASHES[colour]}"' if _DASHES[colour] else ""
            parts.append(f'<path class="s{colour}"{dash} d="M{x} {y - 3} h26"/>')
            parts.append(_mark(colour, x + 13, y - 3))
        parts.append(_text(x + 33, y + 1, name, "start"))
    return parts


def _wrapped(x: float, y: float, name: str) -> list[str]:
    """A label under a bar, on two or three lines at its hyphens and spaces."""
    words = name.replace("-", " ").split()
    lines = [" ".join(words[:2]), " ".join(words[2:])] if len(words) > 2 else words
    return [_text(x, y + 13 * i, line, "middle", "small") for i, line in enumerate(lines) if line]


def _text(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text{name} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _document(title: str, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title, {chr(34): "&quot;"})}">\n<style>\n{_style()}</style>\n'
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>\n{body}\n</svg>\n'
    )


def _style() -> str:
    light = _colours(_LIGHT, page="#ffffff", ink="#1f2328", grid="#d8dee4", on="#ffffff")
    dark = _colours(_DARK, page="#0d1117", ink="#e6edf3", grid="#30363d", on="#0d1117")
    return (
        "text { font: 12px system-ui, sans-serif; }\n"
        ".title { font-size: 15px; font-weight: 600; }\n.small { font-size: 11px; }\n"
        "polyline, path, line { fill: none; }\n"
        "polyline, path[class^=s], line { stroke-width: 2; }\n"
        f".guide {{ stroke-dasharray: 3 4; }}\n{light}"
        f"@media (prefers-color-scheme: dark) {{\n{dark}}}\n"
    )


def _colours(series: Sequence[str], *, page: str, ink: str, grid: str, on: str) -> str:
    rules = [
        f".page {{ fill: {page}; }}",
        f"text {{ fill: {ink}; }}",
        f"text.on {{ fill: {on}; font-weight: 600; }}",
        f".axis, .guide {{ stroke: {ink}; }}",
        f".grid {{ stroke: {grid}; }}",
    ]
    for number, colour in enumerate(series):
        rules.append(f".s{number} {{ stroke: {colour}; }}")
        rules.append(f".f{number} {{ fill: {colour}; }}")
    return "\n".join(rules) + "\n"
