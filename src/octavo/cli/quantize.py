"""octavo quantize MODEL OUT --type TYPE: write a checkpoint of floats with fewer bits."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from octavo.cli.progress import PhaseProgress
from octavo.config.cli_args import Parser
from octavo.errors import ConfigError
from octavo.foundation.machine import cpu_count
from octavo.runner.calibration import watch_activations
from octavo.weights.durable import flush
from octavo.weights.hf_folder import open_folder
from octavo.weights.quant.scaling import Seen, check_wiring
from octavo.weights.quant.write_folder import BITS, GROUPS, quantise_folder
from octavo.weights.quant.write_gguf import KINDS, quantise_gguf

Write = Callable[[Path, Path, str, Callable[[float], None]], None]


def run(arguments: Sequence[str]) -> int:
    """Quantise one model; OUT is whole when this returns 0, and not there otherwise."""
    parser = Parser(
        prog="octavo quantize",
        description="Write a GGUF file of floats as q8_0, q4_0 or q4_k, or a Hugging Face folder "
        "of floats as int8 or int4 (compressed-tensors).",
    )
    parser.add_argument("model", type=Path, help="A .gguf file or a folder.")
    parser.add_argument("out", type=Path, help="The file or folder to write; must not exist.")
    parser.add_argument(
        "--type", required=True, choices=(*KINDS, *BITS), help="Type of the layers' matrices."
    )
    parser.add_argument(
        "--group-size",
        type=int,
        choices=GROUPS,
        help="Columns that share a scale in a folder; default: the most that divide all rows.",
    )
    parser.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="A text that is like what the model will read: columns of a folder are scaled by what "
        "flows through them before they are rounded (AWQ). 2,048 tokens of it are used.",
    )
    parsed = parser.parse_args(arguments)
    write = _check(parsed.model, parsed.out, parsed.type)
    text = _calibration_text(parsed)
    unfinished = parsed.out.with_name(f".{parsed.out.name}.unfinished")
    _remove(unfinished)
    line = PhaseProgress(in_bytes=False)
    try:
        if write is quantise_folder and (text is not None or parsed.group_size is not None):
            seen = None if text is None else _seen(parsed.model, text, line)
            write = partial(quantise_folder, group=parsed.group_size, seen=seen)
        write(
            parsed.model, unfinished, parsed.type, lambda share: line.show("quantising", share, 1.0)
        )
        flush(unfinished)
        unfinished.replace(parsed.out)
    finally:
        line.close()
        _remove(unfinished)
    print(parsed.out)
    return 0


def _calibration_text(parsed: argparse.Namespace) -> str | None:
    """Raises ConfigError for options that a GGUF file does not take, and for an unreadable text."""
    if parsed.type in KINDS and (parsed.calibration or parsed.group_size):
        raise ConfigError(
            f"--group-size and --calibration are for folders; --type {parsed.type} has groups of "
            "its own"
        )
    if parsed.calibration is None:
        return None
    try:
        text: str = parsed.calibration.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"--calibration {parsed.calibration} cannot be read: {error}") from error
    return text


def _seen(model: Path, text: str, line: PhaseProgress) -> dict[str, Seen]:
    checkpoint = open_folder(model)
    check_wiring(checkpoint.facts, checkpoint.where)
    return watch_activations(
        checkpoint,
        text,
        num_threads=cpu_count(),
        report=lambda share: line.show("reading the text", share, 1.0),
    )


def _check(model: Path, out: Path, kind: str) -> Write:
    """Who writes that type. Raises ConfigError for a source or a target of the wrong kind."""
    if out.exists():
        raise ConfigError(f"{out} exists already; name another file or folder")
    if not out.parent.is_dir():
        raise ConfigError(f"there is no folder {out.parent} to write {out.name} to")
    if kind in KINDS:
        if not model.is_file() or model.suffix != ".gguf":
            raise ConfigError(
                f"--type {kind} makes a GGUF file of a GGUF file of floats, which {model} is not; "
                f"for a folder use --type {' or '.join(BITS)}"
            )
        return quantise_gguf
    if not model.is_dir():
        raise ConfigError(
            f"--type {kind} makes a folder of a Hugging Face folder, which {model} is not; for a "
            f"GGUF file use --type {' or '.join(KINDS)}"
        )
    return quantise_folder


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
