"""Virtual environments of the peers, made once and kept in a cache folder.

Owns: pip, the limit on what may be downloaded, the note that says how an attempt ended.
Does not know: what an engine does.

An environment that could not be made stays so, with its reason, until its recipe changes or
`retry` is asked for. Everything that pip prints is in `NAME.log`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.peers.engines import Peer, Step

MAX_DOWNLOAD_BYTES = 1_500_000_000  # of one peer, all packages together
_TIMEOUT_S = 3 * 3600.0  # a build from source on two busy cores
# Set on some machines for old builds of OpenBLAS; they slow current ones down.
UNWANTED_VARIABLES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "PYTHONPATH")


class SetupError(Exception):
    """An environment cannot be made; the message says why in one line."""


class Environments:
    """The folder that holds them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def python(self, name: str) -> Path:
        """The interpreter of an environment, whether it exists or not."""
        return self._folder / name / "bin" / "python"

    def state(self, peer: Peer) -> str | None:
        """Empty: ready. Else the reason why not; None: not tried, or the recipe has changed."""
        try:
            note = json.loads(self._note(peer).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return str(note["reason"]) if note["recipe"] == _fingerprint(peer) else None

    def versions(self, peer: Peer) -> list[str]:
        """What is installed, as `pip freeze` says it."""
        note = json.loads(self._note(peer).read_text(encoding="utf-8"))
        return list(note["versions"])

    def ensure(self, peer: Peer, *, retry: bool = False) -> None:
        """Make it unless it is there. Raises SetupError."""
        state = self.state(peer)
        if state == "":
            return
        if state and not retry:
            raise SetupError(state)
        reason, versions = "", list[str]()
        try:
            versions = self._make(peer)
        except SetupError as error:
            reason = str(error)
            shutil.rmtree(self._folder / peer.name, ignore_errors=True)
        note = {"recipe": _fingerprint(peer), "reason": reason, "versions": versions}
        self._note(peer).write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")
        if reason:
            raise SetupError(reason)

    def run(self, name: str, arguments: Sequence[str], more: Mapping[str, str]) -> str:
        """Run the environment's Python; returns what it printed. Raises SetupError."""
        log = self._folder / f"{name}.log"
        command = [str(self.python(name)), *arguments]
        with log.open("a", encoding="utf-8") as stream:
            stream.write(f"$ {' '.join(command)}\n")
            stream.flush()
            try:
                done = subprocess.run(
                    command,
                    env=clean_environment(more),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=stream,
                    text=True,
                    check=False,
                    timeout=_TIMEOUT_S,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise SetupError(str(error)) from None
            stream.write(done.stdout)
        if done.returncode:
            raise SetupError(_last_error(log) or f"exit code {done.returncode}, see {log.name}")
        return done.stdout

    def _make(self, peer: Peer) -> list[str]:
        folder = self._folder / peer.name
        shutil.rmtree(folder, ignore_errors=True)
        (self._folder / f"{peer.name}.log").unlink(missing_ok=True)
        try:
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise SetupError(f"no virtual environment: {error}") from None
        left = MAX_DOWNLOAD_BYTES
        for step in peer.steps:
            left -= self._install(peer.name, step, left)
        self.run(peer.name, ["-c", f"import {peer.module}"], {})
        return self.run(peer.name, ["-m", "pip", "freeze"], {}).splitlines()

    def _install(self, name: str, step: Step, limit: int) -> int:
        """One step; returns the bytes that it downloaded."""
        if step.removed:
            self._pip(name, ["uninstall", "--yes", *step.removed], step)
            return 0
        wanted = list(step.requirements)
        if step.dependencies_of:
            wanted = self._dependencies(name, step)
        if not step.with_dependencies:
            wanted.append("--no-deps")
        wanted += ["--constraint", str(self._torch_constraint(name))]
        wheels = self._folder / f"{name}.download"
        try:
            self._pip(name, ["download", "--dest", str(wheels), *wanted], step)
            size = sum(file.stat().st_size for file in wheels.iterdir())
            if size > limit:
                raise SetupError(
                    f"{' '.join(wanted)[:80]}: {size / 1e9:.1f} GB to download, more than the "
                    f"{MAX_DOWNLOAD_BYTES / 1e9:.1f} GB that one peer may take"
                )
            self._pip(name, ["install", "--find-links", str(wheels), *wanted], step)
        finally:
            shutil.rmtree(wheels, ignore_errors=True)
        return size

    def _pip(self, name: str, arguments: Sequence[str], step: Step) -> None:
        self.run(name, ["-m", "pip", *arguments], step.environment)

    def _torch_constraint(self, name: str) -> Path:
        """A file that keeps the torch of an earlier step: `pip download` would look for its own."""
        found = self.run(name, ["-m", "pip", "freeze"], {}).splitlines()
        path = self._folder / f"{name}.constraint.txt"
        lines = [line for line in found if line.startswith("torch==")]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    def _dependencies(self, name: str, step: Step) -> list[str]:
        code = (
            "import importlib.metadata as m, json; "
            f"print(json.dumps(m.requires({step.dependencies_of!r}) or []))"
        )
        found: list[str] = json.loads(self.run(name, ["-c", code], {}))
        return [
            requirement
            for requirement in found
            if "extra ==" not in requirement and _project(requirement) not in step.without
        ]

    def _note(self, peer: Peer) -> Path:
        return self._folder / f"{peer.name}.json"


def clean_environment(more: Mapping[str, str]) -> dict[str, str]:
    """This process's variables without those that mislead a peer."""
    kept = {name: value for name, value in os.environ.items() if name not in UNWANTED_VARIABLES}
    return kept | dict(more)


def _project(requirement: str) -> str:
    """The name at the begin of a requirement, normalised."""
    end = next(
        (place for place, sign in enumerate(requirement) if not (sign.isalnum() or sign in "-_.")),
        len(requirement),
    )
    return requirement[:end].lower().replace("_", "-")


def _fingerprint(peer: Peer) -> str:
    """Of what the steps do; a new kind of step leaves those of older peers as they were."""
    steps = [{name: value for name, value in asdict(step).items() if value} for step in peer.steps]
    return hashlib.sha256(repr((peer.module, steps)).encode()).hexdigest()[:16]


def _last_error(log: Path) -> str:
    """The last line that says what went wrong."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    told = [line.strip() for line in lines[-200:] if "error" in line.lower()]
    return told[-1][:300] if told else ""
