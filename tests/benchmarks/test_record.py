"""Results files tell what was measured, not where on a disk."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.record import ROOT, without_folders, write_results
from tools.check_docs import result_faults


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("--out /tmp/r/sched.json", "--out sched.json"),
        ("'-i', '/tmp/tmpvoj', ...>", "'-i', 'tmpvoj', ...>"),
        ("assert '/home/me/.cache/models/a.gguf' == 'a'", "assert 'a.gguf' == 'a'"),
        (f"{ROOT}/benchmarks/results/a.json", "benchmarks/results/a.json"),
        ("POST /v1/completions failed", "POST /v1/completions failed"),
        (
            "http://127.0.0.1:1/tmp/a and models/home/a",
            "http://127.0.0.1:1/tmp/a and models/home/a",
        ),
    ],
)
def test_folders_of_a_machine_are_cut_off(text: str, kept: str) -> None:
    """And nothing else that has slashes."""
    assert without_folders(text) == kept


def test_a_results_file_names_no_folder_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in its command nor in what was found; the check sees a file that does."""
    path = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["x", "--out", "/tmp/r/found.json"])
    write_results(path, {"why": "no such file: /home/me/.cache/a"})
    written = json.loads(path.read_text())

    assert written["command"].endswith(" --out found.json")
    assert written["why"] == "no such file: a"
    assert list(result_faults(path)) == []
    path.write_text('{\n "command": "x --out /tmp/r/found.json"\n}')
    assert list(result_faults(path)) == ["found.json:2: names a place of one machine"]
