"""Runs vLLM's own HTTP tests against `octavo-vllm serve` and writes what failed, and why.

    python -m tools.run_vllm_tests CHECKOUT [--files PART ...] [--out FILE]

CHECKOUT is a folder with the tests of vLLM (the commit that was used is in `COMMIT`); they are
copied into a temporary folder, run there unchanged, file by file, and never kept. Two files are
ours in that copy: `tests/utils.py`, which starts servers, and `tests/conftest.py`. The model that a
test names is served by one that is at hand (`tools/vllm_shim/models.py`).

What is found takes the place of what the results file has of the same files, after each file, so
that a long run may be cut and gone on with. `tools/vllm_tests_page.py` makes the page of it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks.record import RESULTS, commit, write_results
from tests.support.data import data_folder, gemma3_path, minilm_folder, smollm2_path
from tools.vllm_shim.models import (
    BASE_MODEL,
    BASE_TOKENIZER_FOLDER,
    EMBEDDING_MODEL,
    TEXT_MODEL,
    TOKENIZER_FOLDER,
)

COMMIT = "7cfb97e33791a348cd5d7b622cca521d82d8399f"
ROOT = Path(__file__).resolve().parent.parent
OUT = RESULTS / "vllm-http-tests.json"
FILE_TIMEOUT_S = 600
LEAVE_S = 60  # to end the servers after that
# What speaks HTTP to a server of a text or an embedding model; below tests/entrypoints/. Those that
# ask for what is not there are in `vllm_reasons.py`.
_FILES = """
openai/completion/test_completion
openai/completion/test_prompt_validation
openai/chat_completion/test_chat
openai/chat_completion/test_chat_completion
openai/chat_completion/test_batched_chat_completions
openai/chat_completion/test_chat_echo
openai/chat_completion/test_chat_logit_bias_validation
openai/chat_completion/test_completion_with_function_calling
openai/chat_completion/test_enable_force_include_usage
openai/chat_completion/test_include_reasoning
openai/chat_completion/test_logprob_token_ids
openai/chat_completion/test_root_path
openai/chat_completion/test_thinking_token_budget
openai/models/test_models
openai/responses/test_basic
openai/responses/test_function_call
openai/responses/test_simple
openai/responses/test_stateful
openai/responses/test_structured_output
openai/test_async_tokenization
openai/test_chunked_prompt
openai/test_return_token_ids
openai/test_return_tokens_as_ids
openai/test_run_batch
anthropic/test_messages
launchers/test_shutdown
launchers/api_server/test_multi_api_servers
serve/instrumentator/test_basic
serve/instrumentator/test_metrics
serve/instrumentator/test_orca_metrics
serve/instrumentator/test_uds
serve/middleware/test_optional_middleware
serve/tokenize/test_tokenization
pooling/basic/test_truncation
pooling/embed/test_online
pooling/embed/test_online_dimensions
pooling/scoring/test_bi_encoder_online
pooling/token_embed/test_online
"""
FILES = tuple(f"entrypoints/{name}.py" for name in _FILES.split())
# Files that hold unit tests of vLLM's classes as well: what is left of them, as pytest's -k has it.
UNITS = {
    "entrypoints/openai/completion/test_prompt_validation.py": "not prompt_embeds",
    "entrypoints/openai/test_run_batch.py": "not url and not fetch",
}
# Modules that tests start as processes -> the command of `vllm` that does the same.
COMMANDS = {
    "vllm.entrypoints.launchers.api_server.entry": "serve",
    "vllm.entrypoints.openai.run_batch": "run-batch",
}
_START = """import sys
for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
    del sys.modules[name]  # this folder; the command has its own
from vllm_shim.command import run
sys.exit(run(["{}", *sys.argv[1:]]))
"""
SETTINGS = """
[pytest]
addopts = --import-mode=prepend -p no:cacheprovider -p vllm_shim.plugin
asyncio_mode = strict
asyncio_default_fixture_loop_scope = function
timeout = 150
"""


def make_place(checkout: Path, place: Path) -> None:
    """Copy the tests and put our two files in their place."""
    shutil.copytree(checkout / "tests", place / "tests")
    (place / "tests" / "utils.py").write_text("from vllm_shim.remote_server import *\n")
    (place / "tests" / "conftest.py").write_text("from vllm_shim.conftest import *\n")
    (place / "pytest.ini").write_text(SETTINGS)
    for module, word in COMMANDS.items():  # for `python -m`; inside the tests the plugin has `vllm`
        path = place.joinpath(*module.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_START.format(word))
    command = place / "bin" / "vllm"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m vllm_shim.command "$@"\n')
    command.chmod(0o755)


def environment(place: Path) -> dict[str, str]:
    """What a run needs to find Octavo, the models and the shim."""
    kept = data_folder() / "tokenizers"
    folder, base_folder = kept / "smollm2", kept / "gemma3"
    _save_tokenizer(smollm2_path(), folder)
    _save_tokenizer(gemma3_path(), base_folder)
    paths = (str(place), str(ROOT / "src"), str(ROOT / "tools"))
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PATH": os.pathsep.join((str(place / "bin"), os.environ["PATH"])),
        "HF_HUB_OFFLINE": "1",
        TEXT_MODEL: str(smollm2_path()),
        BASE_MODEL: str(gemma3_path()),
        BASE_TOKENIZER_FOLDER: str(base_folder),
        EMBEDDING_MODEL: str(minilm_folder()),
        TOKENIZER_FOLDER: str(folder),
    }


def _save_tokenizer(path: Path, folder: Path) -> None:
    """Keep a tokenizer as transformers reads it from the GGUF file, which takes a while."""
    if folder.exists():
        return
    from transformers import AutoTokenizer  # noqa: PLC0415 - seconds that --help need not wait

    AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).save_pretrained(folder)


def run_file(
    place: Path, name: str, variables: Mapping[str, str], timeout_s: float
) -> dict[str, Any]:
    """Run one file; count what came of its tests."""
    report, log = place / "report.xml", place / "run.log"
    report.unlink(missing_ok=True)
    start = time.monotonic()
    with log.open("w") as output:
        command = [sys.executable, "-m", "pytest", f"tests/{name}", f"--junitxml={report}"]
        command += ["-k", UNITS[name]] if name in UNITS else []
        run = subprocess.Popen(
            command,
            cwd=place,
            env=variables,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        is_cut = not _wait(run, timeout_s)
    cases = list(cases_of(report)) if report.exists() else []
    if not cases:
        tail = log.read_text(errors="replace")[-400:]
        cases = [{"test": "(the file)", "outcome": "failed", "why": f"no report: {tail}"}]
    counts = Counter(case["outcome"] for case in cases)
    return {
        "file": f"tests/{name}",
        "passed": counts["passed"],
        "failed": counts["failed"],
        "skipped": counts["skipped"],
        "seconds": round(time.monotonic() - start, 1),
        "is_cut": is_cut,  # by the time limit: tests are missing
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
        "not_passed": [case for case in cases if case["outcome"] != "passed"],
    }


def _wait(run: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Let a run end by itself, or end it and all its servers; whether it did by itself."""
    try:
        run.wait(timeout_s)
        return True
    except subprocess.TimeoutExpired:
        run.send_signal(signal.SIGINT)
    try:
        run.wait(LEAVE_S)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    return False


def cases_of(report: Path) -> Iterator[dict[str, str]]:
    """Each test of a report: its name, what came of it, and the reason."""
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it
        found = next((child for child in case if child.tag in _OUTCOMES), None)
        outcome = "passed" if found is None else _OUTCOMES[found.tag]
        why = "" if found is None else _reason(found)
        yield {"test": case.get("name") or "", "outcome": outcome, "why": why}


def _reason(found: ElementTree.Element) -> str:
    """The first line of a message; of a file that could not be imported the error itself."""
    lines = (found.get("message") or "").splitlines() or [""]
    errors = [line[1:].strip() for line in (found.text or "").splitlines() if line[:2] == "E "]
    return (errors[-1] if errors and lines[0] == "collection failure" else lines[0])[:300]


_OUTCOMES = {"failure": "failed", "error": "failed", "skipped": "skipped"}


def main() -> int:
    """Run what was asked for and write the results file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="folder that holds vLLM's tests/")
    parser.add_argument("--files", nargs="+", help="parts of file names; default: all")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--timeout", type=float, default=FILE_TIMEOUT_S, help="seconds of a file")
    parser.add_argument("--logs", type=Path, help="folder to keep the output of each file in")
    arguments = parser.parse_args()
    wanted = [
        name for name in FILES if not arguments.files or any(p in name for p in arguments.files)
    ]
    known = json.loads(arguments.out.read_text())["files"] if arguments.out.exists() else []
    found = {file["file"]: file for file in known}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        make_place(arguments.checkout, place)
        variables = environment(place)
        for name in wanted:
            result = run_file(place, name, variables, arguments.timeout)
            print("{file}: {passed} passed, {failed} failed, {skipped} skipped".format(**result))
            found[result["file"]] = result
            _write(
                arguments.out, [found[f"tests/{one}"] for one in FILES if f"tests/{one}" in found]
            )
            if arguments.logs:
                arguments.logs.mkdir(parents=True, exist_ok=True)
                shutil.copy(place / "run.log", arguments.logs / (name.replace("/", "-") + ".log"))
    return 0


def _write(path: Path, files: Sequence[Mapping[str, Any]]) -> None:
    totals = {key: sum(file[key] for file in files) for key in ("passed", "failed", "skipped")}
    write_results(path, {"vllm": COMMIT, "totals": totals, "files": files})


if __name__ == "__main__":
    sys.exit(main())
