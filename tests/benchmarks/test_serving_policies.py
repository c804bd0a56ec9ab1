"""Points, summaries and the page of the policy comparison."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.serving_policies.__main__ import command_parser, main
from benchmarks.serving_policies.page import main as page_main
from benchmarks.serving_policies.page import write_page
from benchmarks.serving_policies.policies import POLICIES
from benchmarks.serving_policies.suite import COMPARISONS
from benchmarks.serving_policies.suite import main as suite_main
from benchmarks.serving_policies.summary import crosses, factors, sustainable_rate
from benchmarks.serving_policies.sweep import Case, Point, run_point
from tests.benchmarks.support import SCHEDULER, engine_machine, virtual_machine

CASE = Case("instruct")


@pytest.mark.parametrize("policy", POLICIES)
def test_all_uses_of_the_pool_add_up_and_every_request_ends(policy: str) -> None:
    """One point of every policy."""
    found = run_point(Point(CASE, policy, 0.2, 1), virtual_machine(), SCHEDULER, num_requests=30)

    kv = found["kv"]
    assert 30 == found["requests"]["num_requests"]
    assert 1.0 == pytest.approx(
        sum(kv[part] for part in ("live", "reserved", "never_used", "lost", "free"))
    )
    assert min(kv.values()) >= -1e-9
    assert 0 < kv["live"] < 1


def test_paging_wastes_least_and_a_better_guess_wastes_less() -> None:
    """On the same requests, when requests wait."""
    waste = {
        policy: run_point(
            Point(CASE, policy, 5.0, 1), virtual_machine(32), SCHEDULER, num_requests=60
        )["kv"]["waste"]
        for policy in ("orca-max", "orca-oracle", "paged")
    }

    assert waste["paged"] < waste["orca-oracle"] < waste["orca-max"]


def test_a_point_is_the_same_every_time() -> None:
    """Virtual time depends on nothing outside."""
    points = [
        run_point(Point(CASE, "paged", 1.0, 3), virtual_machine(), SCHEDULER, num_requests=20)
        for _ in range(2)
    ]

    assert points[0] == points[1]


def test_a_shared_prefix_is_stored_once_when_paged() -> None:
    """Sixteen requests with 24 equal tokens in front."""
    case = Case("instruct", prefix_len=24)

    sharing = {
        policy: run_point(
            Point(case, policy, 2.0, 1), virtual_machine(64), SCHEDULER, num_requests=16
        )["kv"]["sharing"]
        for policy in ("orca-oracle", "paged")
    }

    assert 0 == sharing["orca-oracle"]
    assert 0.1 < sharing["paged"] < 1


def test_the_native_engine_runs_every_policy_one_after_another() -> None:
    """The model is loaded once; rows that one run left behind do not disturb the next."""
    machine = engine_machine()
    try:
        for policy in POLICIES:
            point = Point(CASE, policy, 500.0, 1)
            found = run_point(point, machine, SCHEDULER, num_requests=12)
            assert 12 == found["requests"]["num_requests"]
            assert found["requests"]["normalised_latency_s"] > 0
    finally:
        machine.close()
    assert "real time; random" in machine.describe(), "results are written after the end"


def test_a_sustainable_rate_lies_between_two_points() -> None:
    """By linear interpolation; a curve that never crosses gives its end."""
    points = [(1.0, 0.1), (2.0, 0.2), (3.0, 0.6)]

    assert 2.25 == pytest.approx(sustainable_rate(points, 0.3))
    assert 3.0 == sustainable_rate(points, 1.0)
    assert sustainable_rate(points, 0.05) is None
    assert crosses(points, 0.4)
    assert not crosses(points, 1.0)


def document(latencies: dict[str, list[float]]) -> dict[str, Any]:
    """A results file with these normalised latencies at 1, 2, 3 ... requests per second."""
    kv = {
        "live": 0.5,
        "reserved": 0.1,
        "never_used": 0.1,
        "lost": 0.1,
        "free": 0.2,
        "waste": 0.28,
        "sharing": 0.0,
        "num_rows": 5.0,
    }
    return {
        "machine": "virtual time; a test of XYZ",
        "is_virtual": True,
        "max_model_len": 64,
        "block_size": 8,
        "num_blocks": 16,
        "num_requests": 10,
        "commit": "abc",
        "date": "today",
        "cpu": "some",
        "command": "python -m something",
        "points": [
            {
                "case": {"workload": "chat", "n": 1, "beam_width": 0, "prefix_len": 0},
                "policy": policy,
                "rate": float(rate),
                "seed": 0,
                "requests": {"normalised_latency_s": latency},
                "kv": kv,
            }
            for policy, curve in latencies.items()
            for rate, latency in enumerate(curve, 1)
        ],
    }


def test_factors_say_when_they_are_bounds() -> None:
    """The limit is five times the paged latency at the lowest rate: 0.5 seconds."""
    found = document(
        {
            "static": [0.9, 2.0, 3.0, 4.0],
            "orca-max": [0.1, 0.9, 2.0, 3.0],
            "orca-oracle": [0.1, 0.1, 0.2, 0.3],
            "paged": [0.1, 0.1, 0.1, 0.9],
        }
    )

    assert {"static": "> 3.5", "orca-max": "2.33", "orca-oracle": "?"} == factors(
        found, Case("chat")
    )


def test_the_page_says_what_the_results_say(tmp_path: Path) -> None:
    """Numbers, command, links and plots that can be drawn."""
    results = tmp_path / "results" / "serving-chat-test.json"
    results.parent.mkdir()
    found = document({"orca-max": [0.1, 0.9], "paged": [0.1, 0.1]})
    results.write_text(json.dumps(found))
    page = tmp_path / "docs" / "page.md"

    plots = write_page([results], page)
    text = page.read_text()

    assert "$" not in text
    assert "a test of XYZ" in text
    assert "python -m something" in text
    assert "(../results/serving-chat-test.json)" in text
    assert "| orca-max | 1.50/s |" in text
    assert ["serving-chat-test-latency.svg", "serving-chat-test-memory.svg"] == [
        plot.name for plot in plots
    ]
    for plot in plots:
        assert f"plots/{plot.name}" in text
        assert "paged" in "".join(ElementTree.parse(plot).getroot().itertext())


def test_a_page_needs_results(tmp_path: Path) -> None:
    """Nothing is written from nothing."""
    with pytest.raises(ValueError, match="no results files"):
        write_page([], tmp_path / "page.md")


def test_the_commands_measure_and_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A small sweep with samples and a prefix, then its page."""
    out = tmp_path / "serving-small.json"

    main(
        "--workload instruct --policies orca-oracle,paged --rates 1,20 --num-requests 12 --seeds 2 "
        f"--kv-slots 4096 --prefix-len 40,80 --out {out}".split()
    )
    page_main([str(out), "--page", str(tmp_path / "docs" / "page.md")])

    found = json.loads(out.read_text())
    assert 2 * 2 * 2 * 2 == len(found["points"])
    assert {"commit", "command", "cpu", "date"} <= set(found)
    assert "shared prefix of 80" in (tmp_path / "docs" / "page.md").read_text()
    assert "paged is" in capsys.readouterr().out


def test_every_comparison_of_the_suite_is_a_command_that_parses(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A suite that fails after an hour at a misspelt flag is a bad one."""
    suite_main(["--list"])

    commands = capsys.readouterr().out.splitlines()
    assert len(COMPARISONS) == len(commands)
    for command in commands:
        options = command_parser().parse_args(command.split()[3:])
        assert options.out is not None
        assert options.policies
