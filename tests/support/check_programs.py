"""The check programs of csrc/tests: built outside Python, with or without sanitizers, and run.

    python -m tests.support.check_programs address thread   both kinds of sanitizers, all programs

Compiled programs are kept in the folder of test data, by the hash of all that went into them.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo import _native
from octavo.weights.durable import exclusive_lock
from tests.support.data import data_folder

CSRC = Path(__file__).resolve().parents[2] / "csrc"
FLAGS = ("-std=c++17", "-O2", "-ffp-contract=off", "-pthread", f"-I{CSRC}")
SANITIZERS = {
    "none": (),
    "address": (
        *("-g1", "-fsanitize=address,undefined,float-cast-overflow"),
        "-fno-sanitize-recover=all",
    ),
    # GCC says that fences are not followed; those here only keep a sleeper from missing its call.
    "thread": ("-g1", "-fsanitize=thread", "-Wno-tsan"),
}
_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl")
ISA_FLAGS: dict[str, tuple[str, ...]] = {
    "scalar": (),
    "neon": (),
    "avx2": _AVX2,
    "avx_vnni": (*_AVX2, "-mavxvnni"),
    "avx512": _AVX512,
    "avx512_vnni": (*_AVX512, "-mavx512vnni"),
}


@dataclass(frozen=True, slots=True)
class Program:
    """`sources` are compiled once; `per_isa` once for each instruction set of this machine."""

    sources: tuple[str, ...]
    per_isa: tuple[str, ...] = ()
    uses_isa: bool = False  # the sources hold kernels of all instruction sets that flags allow


PROGRAMS = {
    "threads": Program(("tests/test_threads.cpp", "threads.cpp")),
    "mask_filler": Program(("tests/test_mask_filler.cpp", "mask_filler.cpp", "threads.cpp")),
    "fresh_blocks": Program(
        ("tests/test_fresh_blocks.cpp", "fresh_blocks.cpp", "kv_pool.cpp", "memory.cpp")
    ),
    "row_groups": Program(("tests/test_row_groups.cpp", "row_groups.cpp")),
    "sampler": Program(("tests/test_sampler.cpp", "sampler.cpp")),
    "allowed_draw": Program(("tests/test_allowed_draw.cpp", "sampler.cpp")),
    "kernels": Program(("tests/test_kernels.cpp",), uses_isa=True),
    "attention": Program(("tests/test_attention.cpp", "row_groups.cpp"), uses_isa=True),
    "linear": Program(
        ("tests/test_linear.cpp", "tests/bench_linear.cpp", "packing.cpp"),
        per_isa=("tests/linear_kernels.cpp",),
    ),
}


def run(
    name: str, sanitizer: str = "none", timeout: float = 600
) -> subprocess.CompletedProcess[str]:
    """Build a program if it is not there, and run it."""
    program = build(name, sanitizer)
    env = os.environ | {"UBSAN_OPTIONS": "print_stacktrace=1"}
    return subprocess.run(
        [program], capture_output=True, text=True, timeout=timeout, check=False, env=env
    )


def build(name: str, sanitizer: str = "none") -> Path:
    """The compiled program."""
    program, flags = PROGRAMS[name], (*FLAGS, *SANITIZERS[sanitizer])
    units = [(source, _best_isa_flags() if program.uses_isa else ()) for source in program.sources]
    for source in program.per_isa:
        units += [
            (source, (f"-DOCTAVO_TEST_{isa.upper()}", *ISA_FLAGS[isa]))
            for isa in _native.available_isas()
        ]
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    assert compiler is not None, "the extension cannot have been built without a compiler"
    folder = data_folder() / "check-programs"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}-{sanitizer}-{_fingerprint(compiler, flags, units)}"
    with exclusive_lock(folder / f"{name}-{sanitizer}.lock"):
        if not target.exists():
            _compile(compiler, flags, units, target)
    return target


def _best_isa_flags() -> tuple[str, ...]:
    """Of the widest vectors; the programs have narrower ones as well."""
    isas = _native.available_isas()
    return next(ISA_FLAGS[isa] for isa in ("avx512", "avx2", "neon", "scalar") if isa in isas)


def _fingerprint(compiler: str, flags: Sequence[str], units: Sequence[object]) -> str:
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout
    found = hashlib.sha256(version + repr((flags, units)).encode())
    for path in sorted(CSRC.rglob("*.[ch]pp")):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def _compile(
    compiler: str, flags: Sequence[str], units: Sequence[tuple[str, Sequence[str]]], target: Path
) -> None:
    for stale in target.parent.glob(target.name.rpartition("-")[0] + "-*"):
        stale.unlink()
    objects: list[Path] = []
    for number, (source, more) in enumerate(units):
        objects.append(target.with_suffix(f".{number}.o"))
        command = [compiler, *flags, *more, "-c", str(CSRC / source), "-o", str(objects[-1])]
        subprocess.run(command, check=True)
    staged = target.with_suffix(".new")
    subprocess.run([compiler, *flags, *map(str, objects), "-o", str(staged)], check=True)
    for path in objects:
        path.unlink()
    staged.rename(target)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run programs under sanitizers, and say what they found."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.check_programs")
    parser.add_argument("sanitizers", nargs="+", choices=list(SANITIZERS))
    parser.add_argument("--only", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    options = parser.parse_args()
    failed = 0
    for sanitizer in options.sanitizers:
        for name in options.only:
            start = time.monotonic()
            outcome = run(name, sanitizer, timeout=3600)
            verdict = "FAIL" if outcome.returncode else "ok  "
            _say(f"{verdict} {name} ({sanitizer}, {time.monotonic() - start:.0f} s)")
            if outcome.returncode:
                failed += 1
                _say(outcome.stdout[-4000:] + outcome.stderr[-12000:])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
