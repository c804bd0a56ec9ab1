"""Downloads from a hub on loopback, through the hub's own library.

That library reads its variables when it is imported, so each test runs in a fresh interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.gguf_bytes import tiny_llama
from tests.support.hf_folders import sharded_folder, tiny_folder
from tests.support.stub_hub import COMMIT, REPOSITORY, StubHub, stub_hub

ROOT = Path(__file__).resolve().parents[2]
CODE = """
import json, sys
from octavo.errors import OctavoError
from octavo.weights.download import pull
from octavo.weights.source import find_model, open_checkpoint

reports, results = [], []
for arguments in json.loads(sys.argv[1]):
    try:
        model, revision, pulls = arguments
        if pulls:
            pull(model, reports.append, revision=revision)
        if revision == "any architecture":
            results.append([find_model(model, any_architecture=True).name, 0])
            continue
        checkpoint = open_checkpoint(model, revision=revision, on_progress=reports.append)
        results.append([checkpoint.name, len(checkpoint.tensors)])
    except OctavoError as error:
        results.append([type(error).__name__, str(error)])
print(json.dumps({
    "results": results,
    "reports": [[r.phase, r.done_bytes, r.total_bytes] for r in reports],
    "imported": "huggingface_hub" in sys.modules,
}))
"""


@dataclass
class Outcome:
    results: list[Any]
    reports: list[tuple[str, int, int]]
    imported: bool


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[StubHub]:
    folder = sharded_folder(tmp_path / "repository")
    (folder / "chat_template.jinja").write_text("template", encoding="utf-8")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    unwanted = ("README.md", "pytorch_model.bin", "onnx/model.json", "original/params.safetensors")
    with stub_hub(files | dict.fromkeys(unwanted, b"unwanted")) as running:
        yield running


@pytest.fixture
def opened(hub: StubHub, tmp_path: Path) -> Any:
    """Open models in a fresh interpreter that knows the stub hub and an empty cache."""

    def run(
        *models: str, revision: str | None = None, pulls: bool = False, **environment: str
    ) -> Outcome:
        names = [[model, revision, pulls] for model in models]
        variables = {
            n: v for n, v in os.environ.items() if not n.startswith(("HF_", "TRANSFORMERS"))
        }
        variables |= {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "hf"),
            "NO_PROXY": "127.0.0.1",
        }
        done = subprocess.run(
            [sys.executable, "-c", CODE, json.dumps(names)],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=variables | environment,
            check=True,
        )
        assert done.stderr == ""  # the library draws nothing
        return Outcome(**json.loads(done.stdout))

    return run


def test_a_folder_is_fetched_once_and_only_what_is_needed(hub: StubHub, opened: Any) -> None:
    """Then it opens without network, library or endpoint."""
    wanted = {
        n for n in hub.files if n.startswith("model") or n.endswith((".jinja", "config.json"))
    }

    first = opened(REPOSITORY, HF_TOKEN="hf_secret")

    assert first.results == [[REPOSITORY, 11]]
    assert set(hub.fetched) == wanted
    assert len(hub.fetched) == len(wanted)
    total = sum(len(hub.files[name]) for name in wanted)
    assert first.reports[-1] == ["downloading", total, total]
    assert "Bearer hf_secret" in hub.tokens

    again = opened(REPOSITORY, HF_HUB_OFFLINE="1", HF_ENDPOINT="http://127.0.0.1:9")
    assert again == Outcome(results=[[REPOSITORY, 11]], reports=[], imported=False)


def test_a_plan_fetches_config_json_alone(hub: StubHub, tmp_path: Path) -> None:
    """What a model takes is known before its weights are; a repository that is lost is refused."""
    code = "import sys; from octavo.cli.main import main; sys.exit(main(sys.argv[1:]))"
    ended = [
        subprocess.run(
            [sys.executable, "-c", code, "plan", model, "--memory", "1G", "--json"],
            env=os.environ
            | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "NO_PROXY": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        for model in (REPOSITORY, "acme/nothing")
    ]

    assert (ended[0].returncode, hub.fetched) == (0, ["config.json"]), ended[0].stderr
    assert json.loads(ended[0].stdout)["model"] == REPOSITORY
    assert (ended[1].returncode, ended[1].stdout) == (1, "")
    assert "the hub has no model acme/nothing" in ended[1].stderr


def test_an_interrupted_download_goes_on_where_it_stopped(
    hub: StubHub, opened: Any, tmp_path: Path
) -> None:
    """What arrived is not fetched again."""
    opened(REPOSITORY)
    snapshot = next(tmp_path.glob("hf/hub/models--*/snapshots/*"))
    lost = snapshot / "model-00002-of-00002.safetensors"
    lost.resolve().unlink()
    lost.unlink()
    hub.fetched.clear()

    assert opened(REPOSITORY).results == [[REPOSITORY, 11]]
    assert hub.fetched == [lost.name]


def test_a_model_that_cannot_fit_is_refused_before_a_byte_comes(hub: StubHub, opened: Any) -> None:
    """By the sizes that the hub tells; files that are here already need no room."""
    opened(REPOSITORY)
    hub.sizes = {"model-00001-of-00002.safetensors": 10**18}
    assert opened(REPOSITORY, pulls=True).results == [[REPOSITORY, 11]]

    hub.commit = COMMIT[::-1]
    hub.fetched.clear()
    (refused,) = opened(REPOSITORY, pulls=True).results

    assert refused[0] == "DownloadError"
    assert "TiB while it is fetched" in refused[1]
    assert not any(name.endswith(".safetensors") for name in hub.fetched)


def test_a_model_that_cannot_be_served_is_refused_before_its_weights_come(
    hub: StubHub, opened: Any, tmp_path: Path
) -> None:
    """config.json arrives first, and decides."""
    other = tiny_folder(tmp_path / "other", architectures=["MambaForCausalLM"])
    hub.files = {path.name: path.read_bytes() for path in other.iterdir()}
    hub.files["modeling_mamba.py"] = b"code"

    outcome = opened(REPOSITORY)

    assert outcome.results[0][0] == "UnknownArchitectureError"
    assert "MambaForCausalLM is not supported. Supported: Arcee" in outcome.results[0][1]
    assert hub.fetched == ["config.json"]

    foreign = opened(REPOSITORY, revision="any architecture")  # code of others may run it
    assert foreign.results == [[REPOSITORY, 0]]
    assert sorted(hub.fetched) == ["config.json", "model.safetensors", "modeling_mamba.py"]


def test_one_gguf_file_is_fetched_by_quantisation_or_name(hub: StubHub, opened: Any) -> None:
    """And nothing else of the repository."""
    content = tiny_llama().build()
    hub.files = dict.fromkeys(("m-Q4_0.gguf", "m-Q8_0.gguf", "README.md"), content)

    by_type, by_name = f"{REPOSITORY}:Q8_0", f"{REPOSITORY}/m-Q8_0.gguf"
    outcome = opened(by_type, by_name, f"{REPOSITORY}:Q2_K", REPOSITORY)

    assert outcome.results[:2] == [[by_type, 11], [by_name, 11]]
    assert hub.fetched == ["m-Q8_0.gguf"]
    assert "fits no file" in outcome.results[2][1]
    assert f"Choose one of its GGUF files: {REPOSITORY}/m-Q4_0.gguf" in outcome.results[3][1]


def test_a_commit_is_a_revision_and_a_lost_name_is_not(hub: StubHub, opened: Any) -> None:
    """The refusal names what the hub does not have."""
    assert opened(REPOSITORY, revision=COMMIT).results == [[REPOSITORY, 11]]
    assert opened(REPOSITORY, revision="v9").results == [
        ["DownloadError", f"{REPOSITORY} has no revision v9"]
    ]


def test_refusals_of_the_hub_say_what_to_do(hub: StubHub, opened: Any) -> None:
    """Unknown repository, gated repository."""
    hub.is_gated = True

    (unknown, gated) = opened("acme/nothing", REPOSITORY).results

    assert unknown[0] == gated[0] == "DownloadError"
    assert "no model acme/nothing, or it is private and HF_TOKEN is not set" in unknown[1]
    assert "is gated: accept its licence on the hub, then set HF_TOKEN" in gated[1]


def test_without_a_network_the_error_says_what_to_do(opened: Any, tmp_path: Path) -> None:
    """Offline by choice, or nobody at the port."""
    (forbidden,) = opened(REPOSITORY, HF_HUB_OFFLINE="1").results
    (refused,) = opened(REPOSITORY, HF_ENDPOINT="http://127.0.0.1:9").results

    assert forbidden == [
        "DownloadError",
        f"{REPOSITORY} is not in {tmp_path / 'hf' / 'hub'}, and HF_HUB_OFFLINE is set",
    ]
    assert refused[0] == "DownloadError"
    assert "Check the network, and HF_ENDPOINT if it is set" in refused[1]
