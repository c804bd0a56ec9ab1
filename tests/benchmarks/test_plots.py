"""SVG plots: well formed, labelled, and true to their numbers."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from benchmarks.plots import (
    Bar,
    BarGroup,
    Scale,
    Series,
    grouped_bars,
    line_chart,
    stacked_bars,
    ticks,
)

SVG = "{http://www.w3.org/2000/svg}"


def chart(*series: Series, y_limit: float | None = None) -> ElementTree.Element:
    return ElementTree.fromstring(
        line_chart("A & B", "rate <1/s>", "latency", series, y_limit=y_limit)
    )


def test_a_chart_has_title_axes_and_legend() -> None:
    """Special characters included."""
    words = [
        "".join(text.itertext())
        for text in chart(Series("one", [1, 2], [3, 4]), Series("two", [1, 2], [4, 5])).iter(
            f"{SVG}text"
        )
    ]

    assert {"A & B", "rate <1/s>", "latency", "one", "two"} <= set(words)


def test_a_line_leaves_through_the_top() -> None:
    """Between the last point inside and the first one outside, at the limit."""
    root = chart(Series("one", [0.0, 1.0, 2.0], [0.0, 1.0, 3.0]), y_limit=2.0)
    (line,) = root.iter(f"{SVG}polyline")
    points = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]

    assert 3 == len(points)
    assert (points[1][0] + (points[1][0] - points[0][0]) / 2) == pytest.approx(
        points[2][0], abs=0.2
    )
    assert points[2][1] < points[1][1] < points[0][1]


def test_a_line_that_is_never_inside_says_so() -> None:
    """In the legend, where its name is."""
    root = chart(Series("in", [0.0, 1.0], [0.0, 1.0]), Series("out", [0, 1], [8, 9]), y_limit=2.0)

    assert "out (above)" in ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]


def test_bars_are_as_high_as_their_shares() -> None:
    """A quarter is a third of three quarters."""
    root = ElementTree.fromstring(
        stacked_bars("T", "share", ["a", "b"], [Bar("x", [0.25, 0.75]), Bar("y", [1.0, 0.0])])
    )
    heights = [
        float(rect.attrib["height"])
        for rect in root.iter(f"{SVG}rect")
        if rect.attrib.get("class", "").startswith("f") and float(rect.attrib["width"]) > 30
    ]

    assert 3 * heights[0] == pytest.approx(heights[1], abs=0.5)
    assert heights[0] + heights[1] == pytest.approx(heights[2], abs=0.5)


def test_colours_follow_the_reader() -> None:
    """Light by itself, dark where the page is dark."""
    text = line_chart("T", "x", "y", [Series("one", [1], [1])])

    assert "prefers-color-scheme: dark" in text


@pytest.mark.parametrize(
    ("high", "expected"), [(6.0, [0, 1, 2, 3, 4, 5, 6]), (0.25, [0, 0.05, 0.1, 0.15, 0.2, 0.25])]
)
def test_ticks_are_round(high: float, expected: list[float]) -> None:
    """And reach the end."""
    assert expected == pytest.approx(ticks(0.0, high))


def test_a_scale_keeps_values_inside() -> None:
    """A value beyond the end is drawn at the end."""
    scale = Scale(0.0, 10.0, 100.0, 0.0)

    assert [100.0, 50.0, 0.0, 0.0] == [scale.at(value) for value in (-1, 5, 10, 99)]


def test_a_plot_of_nothing_is_refused() -> None:
    """By its title."""
    with pytest.raises(ValueError, match="'T' has no points"):
        line_chart("T", "x", "y", [])
    with pytest.raises(ValueError, match="'T' has no bars"):
        stacked_bars("T", "y", ["a"], [])


def test_grouped_bars_stand_side_by_side_on_scales_of_their_own() -> None:
    """The highest bar of each group has the same height, and every value is written."""
    groups = [BarGroup("prefill", [400.0, 100.0]), BarGroup("decode", [0.0, 40.0])]

    svg = grouped_bars("speeds", ["ours", "theirs"], groups)

    heights = [
        float(text) for text in re.findall(r'class="f\d" x="[\d.]+".*?height="([\d.]+)"', svg)
    ]
    assert heights[0] == heights[3] == max(heights[:4])
    assert 0.0 == heights[2]
    assert all(f">{value}</text>" in svg for value in ("400", "100", "40", "prefill", "theirs"))


def test_a_chart_without_bars_is_refused() -> None:
    """With its title."""
    with pytest.raises(ValueError, match="speeds"):
        grouped_bars("speeds", [], [])
