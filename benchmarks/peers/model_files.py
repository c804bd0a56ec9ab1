"""The model in every form that an engine reads, made from one checkpoint and kept in a folder.

Owns: which form is made by what, and that a half-made one is thrown away.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.engines import Form
from benchmarks.peers.environments import Environments, SetupError
from octavo.errors import OctavoError
from octavo.weights.checkpoint import Checkpoint

_DONE = "complete"  # a file in the folder of a form that is whole


class ModelFiles:
    """One model. `gguf` is the file that it came from."""

    def __init__(
        self, checkpoint: Checkpoint, gguf: Path, folder: Path, environments: Environments
    ) -> None:
        self._checkpoint = checkpoint
        self._gguf = gguf
        status = gguf.stat()
        stamp = f"{gguf.name} {status.st_size} {status.st_mtime_ns}"
        name = f"{gguf.stem}-{hashlib.sha256(stamp.encode()).hexdigest()[:8]}"
        self._folder = folder / name
        self._environments = environments

    def path(self, form: Form) -> Path:
        """Where the form lies; it is made if it is not there. Raises SetupError."""
        if form == "gguf":
            return self._gguf
        target = self._folder / form
        if (target / _DONE).exists():
            return target
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._makers()[form](target)
        except (OctavoError, ImportError) as error:
            raise SetupError(f"{form} weights: {error}") from None
        (target / _DONE).touch()
        return target

    def _makers(self) -> dict[Form, Callable[[Path], None]]:
        return {
            "float32": lambda target: self._export(target, "float32"),
            "bfloat16": lambda target: self._export(target, "bfloat16"),
            "openvino-float32": lambda target: self._openvino(target, ["--weight-format", "fp32"]),
            "openvino-int4": lambda target: self._openvino(
                target, ["--weight-format", "int4", "--group-size", "64", "--ratio", "1.0"]
            ),
            "ctranslate2": self._ctranslate2,
            "onnx": self._onnx,
        }

    def _export(self, target: Path, dtype: str) -> None:
        from benchmarks.peers.hf_export import export_folder  # noqa: PLC0415 - it needs torch

        export_folder(self._checkpoint, target, "float32" if dtype == "float32" else "bfloat16")

    def _openvino(self, target: Path, options: list[str]) -> None:
        arguments = ["-m", "optimum.commands.optimum_cli", "export", "openvino"]
        arguments += ["--model", str(self.path("float32")), "--task", "text-generation-with-past"]
        self._run("openvino", [*arguments, *options, str(target)])

    def _ctranslate2(self, target: Path) -> None:
        arguments = ["-m", "ctranslate2.converters.transformers"]
        arguments += ["--model", str(self.path("float32")), "--output_dir", str(target)]
        self._run("ctranslate2", arguments)

    def _onnx(self, target: Path) -> None:
        arguments = ["-m", "onnxruntime_genai.models.builder", "-i", str(self.path("float32"))]
        arguments += ["-o", str(target), "-p", "fp32", "-e", "cpu"]
        arguments += ["-c", str(target.with_name("onnx-cache"))]
        self._run("onnxruntime", arguments)

    def _run(self, peer: str, arguments: list[str]) -> None:
        self._environments.run(peer, arguments, {"HF_HUB_OFFLINE": "1"})
