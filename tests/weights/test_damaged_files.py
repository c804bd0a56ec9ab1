"""Model files that are cut, altered or hostile: a load, or an error of ours that names the file.

Damage follows from a name and a number, so that a failure can be had again. OCTAVO_DAMAGED=2000
(with pytest --timeout 0) makes it 2,000 GGUF files, 2,000 safetensors files and a quarter of that
of each JSON file. `scripts/sanitize extension` runs this module with AddressSanitizer.
"""

from __future__ import annotations

import mmap
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from octavo import LLM, SamplingParams
from octavo.errors import ModelFileError, OctavoError
from octavo.weights.gguf_reader import read_gguf
from tests.support.damage import Damage
from tests.support.damaged_folders import FOLDER_BASES, INDEX, SAFETENSORS, folder_base
from tests.support.damaged_ggufs import GGUF_BASES

CASES = int(os.environ.get("OCTAVO_DAMAGED", "150"))
LONGEST_S = 10.0  # of a processor; nearly all take milliseconds
MOST_BYTES = 300 * 2**20  # more than a sound one needs
JSON_FILES = (
    *("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"),
    INDEX,
)


class HeapFile:
    """A file as memory of exactly its size, whose ends a sanitizer watches, where mmap has pages."""

    def __new__(cls, descriptor: int, length: int, *, access: int) -> np.ndarray:  # type: ignore[misc]
        """An array, because no bytes object of Python's ends where its bytes do."""
        size = os.fstat(descriptor).st_size
        if length or not size or access != mmap.ACCESS_READ:
            raise ValueError("a whole file that is not empty, to be read")
        content = np.empty(size, np.uint8)
        assert os.preadv(descriptor, [content], 0) == size
        content.flags.writeable = False
        return content


@pytest.fixture(autouse=True)
def watched_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a sanitizer files are read into memory."""
    if "OCTAVO_SANITIZED" in os.environ:
        monkeypatch.setattr(mmap, "mmap", HeapFile)


def outcome(path: Path) -> str:
    """Load a model and let it answer: "loads", "refused", or "does not fit" what was asked."""
    peak, start = peak_bytes(), time.process_time()
    result = "loads"
    message = path.name
    try:
        answer(path)
    except ModelFileError as error:
        result, message = "refused", str(error)
    except OctavoError:  # the context is too short for the prompt, or too long for the memory
        result = "does not fit"

    assert path.name in message
    assert time.process_time() - start < LONGEST_S
    assert peak_bytes() - peak < MOST_BYTES
    return result


def answer(path: Path) -> list[int]:
    """Two tokens after three, by way of everything that reads the file."""
    llm = LLM(str(path), threads=1, max_model_len="auto", kv_cache_memory_bytes=1 << 20)
    sampling = SamplingParams(max_tokens=2, temperature=0)
    [output] = llm.generate({"prompt_token_ids": [1, 2, 3]}, sampling, use_tqdm=False)
    return list(output.outputs[0].token_ids)


def peak_bytes() -> int:
    """The most memory that this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def damage_all(cases: int, name: str, load: Callable[[Damage, int], str]) -> None:
    """`cases` loads, each of other damage. Some must be refused, or nothing was damaged."""
    outcomes = []
    for number in range(cases):
        seed = f"{name} {number}"
        try:
            outcomes.append(load(Damage(seed), number))
        except Exception as error:
            raise AssertionError(f"damage by the seed {seed!r}: {error}") from error

    assert "refused" in outcomes


@pytest.mark.parametrize("base", GGUF_BASES)
def test_a_damaged_gguf_file_loads_or_is_refused_by_name(base: str, tmp_path: Path) -> None:
    """Flipped bits, cut ends, false counts, lengths, types, shapes, offsets and keys."""
    file = GGUF_BASES[base]
    sound = file.write(tmp_path / "sound.gguf")
    assert len(answer(sound)) == 2
    tensors = read_gguf(sound).tensors.values()
    head = sound.stat().st_size - sum(len(part) for view in tensors for part in view.parts)

    def load(damage: Damage, number: int) -> str:
        path = tmp_path / f"damaged-{number}.gguf"
        path.write_bytes(damage.to_gguf(file, head))
        result = outcome(path)
        path.unlink()
        return result

    damage_all(-(-CASES // len(GGUF_BASES)), base, load)


def folder_load(
    sound: Path, file_name: str, damaged: Callable[[Damage, bytes], bytes]
) -> Callable[[Damage, int], str]:
    """What comes of a folder of which one file is damaged."""
    content = (sound / file_name).read_bytes()

    def load(damage: Damage, number: int) -> str:
        folder = sound.parent / f"damaged-{number}"
        shutil.copytree(sound, folder)
        (folder / file_name).write_bytes(damaged(damage, content))
        result = outcome(folder)
        shutil.rmtree(folder)
        return result

    return load


@pytest.mark.parametrize("base", FOLDER_BASES)
def test_a_damaged_safetensors_file_loads_or_is_refused_by_name(base: str, tmp_path: Path) -> None:
    """Headers of floats and of the tables that quantised checkpoints have."""
    sound = folder_base(base, tmp_path / "sound")
    assert len(answer(sound)) == 2
    damage_all(
        -(-CASES // len(FOLDER_BASES)), base, folder_load(sound, SAFETENSORS, Damage.to_safetensors)
    )


@pytest.mark.parametrize("file_name", JSON_FILES)
def test_a_damaged_json_file_loads_or_is_refused_by_name(file_name: str, tmp_path: Path) -> None:
    """Other values, keys and types in the small files of a folder."""
    sound = folder_base("floats", tmp_path / "sound", sharded=file_name == INDEX)
    assert len(answer(sound)) == 2
    damage_all(-(-CASES // 4), file_name, folder_load(sound, file_name, Damage.to_json))
