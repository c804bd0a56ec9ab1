"""The dashboard and the alert rules ask for what the server has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from octavo.cli.main import main
from octavo.config.server import METRICS_NAMESPACES, ServerConfig
from tests.support.asgi import scripted_server
from tests.support.promql import parse

NAMESPACE = pytest.mark.parametrize("namespace", METRICS_NAMESPACES)
KIND = pytest.mark.parametrize("kind", ["dashboard", "alerts"])


def printed(kind: str, namespace: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What `octavo metrics` prints."""
    assert main(["metrics", kind, "--metrics-namespace", namespace]) == 0
    return capsys.readouterr().out


def expressions(kind: str, text: str) -> Iterator[str]:
    """Every expression of a file."""
    if kind == "alerts":
        for group in yaml.safe_load(text)["groups"]:
            yield from (rule["expr"] for rule in group["rules"])
        return
    for panel in json.loads(text)["panels"]:
        yield from (target["expr"] for target in panel["targets"])


async def samples_at_the_start(namespace: str) -> dict[str, list[dict[str, str]]]:
    """Names of samples in /metrics before the first request -> their label sets."""
    async with scripted_server(config=ServerConfig(metrics_namespace=namespace)) as client:
        text = (await client.get("/metrics")).content.decode()
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


@KIND
@NAMESPACE
async def test_every_metric_of_every_expression_exists_from_the_start(
    kind: str, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the labels that are asked for; an alert on a series that is not there stays silent."""
    found = await samples_at_the_start(namespace)
    queries = [parse(text) for text in expressions(kind, printed(kind, namespace, capsys))]
    selected = [one for query in queries for one in query.selected]

    assert len(selected) > 10
    for one in selected:
        assert one.metric in found, one.metric
        fits = [
            labels
            for labels in found[one.metric]
            if all(labels[name] == value for name, value in one.labels.items() if value)
        ]
        assert fits, one
    for query in queries:
        for label in query.grouped_by:
            assert any(label in found[one.metric][0] for one in query.selected), (label, query)


@NAMESPACE
async def test_the_namespace_is_that_of_vllms_metrics_only(namespace: str) -> None:
    """Ours are octavo's in either case, and the process's have none."""
    found = await samples_at_the_start(namespace)
    prefixes = {name.partition(":")[0] for name in found if ":" in name}

    assert prefixes == {namespace, "octavo"}
    assert f"{namespace}:num_requests_running" in found
    assert "octavo:num_swaps_total" in found
    assert "process_resident_memory_bytes" in found


async def test_answers_of_all_paths_are_counted_from_the_start() -> None:
    """A counter that begins at 1 has no rate: the first 5xx would wake nobody."""
    found = await samples_at_the_start("vllm")
    labels = {
        (one["method"], one["handler"], one["status"]) for one in found["http_requests_total"]
    }

    for status in ("2xx", "4xx", "5xx"):
        assert ("POST", "/v1/chat/completions", status) in labels
        assert ("GET", "/health", status) in labels


def test_the_dashboard_has_what_grafana_needs(capsys: pytest.CaptureFixture[str]) -> None:
    """Panels with ids and places of their own, and variables for data source and model."""
    board: dict[str, Any] = json.loads(printed("dashboard", "vllm", capsys))
    panels = board["panels"]
    taken = {
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in panels
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    }

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(taken) == sum(panel["gridPos"]["w"] * panel["gridPos"]["h"] for panel in panels)
    assert [variable["name"] for variable in board["templating"]["list"]] == [
        "datasource",
        "model_name",
    ]


def test_every_alert_says_how_bad_it_is_and_what_it_means(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A severity to route by, and words for whoever is woken."""
    [group] = yaml.safe_load(printed("alerts", "vllm", capsys))["groups"]

    for rule in group["rules"]:
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert {"summary", "description"} == rule["annotations"].keys()
        assert rule["for"]


@pytest.mark.parametrize(
    "wrong",
    ["rate(a)", "sum(a", "a{b=c}", "a[5x]", "rate(a[5m]", "no_function(a)", "a b", "absent(a[5m])"],
)
def test_what_is_no_promql_is_not_read(wrong: str) -> None:
    """The test above would let nothing pass."""
    with pytest.raises(ValueError, match=r"cannot read|wanted"):
        parse(wrong)
