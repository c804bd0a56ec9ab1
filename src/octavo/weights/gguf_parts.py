"""Split GGUF models: the names of their files."""

from __future__ import annotations

import re
from pathlib import Path

from octavo.errors import CorruptFileError, ModelFileError

_PART_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
MAX_PARTS = 999


def part_names(name: str) -> list[str]:
    """All parts of the split model that the file `name` belongs to, in order; else `name` alone."""
    match = _PART_NAME.fullmatch(name)
    if match is None:
        return [name]
    stem, _, count = match.groups()
    if not 0 < int(count) <= MAX_PARTS:
        raise CorruptFileError(
            f"{name}: a model of {int(count)} parts; 1 to {MAX_PARTS} are allowed"
        )
    return [f"{stem}-{number:05d}-of-{count}.gguf" for number in range(1, int(count) + 1)]


def part_paths(path: Path) -> list[Path]:
    """The same as paths. Raises ModelFileError when a part is missing."""
    parts = [path.with_name(name) for name in part_names(path.name)]
    missing = [part.name for part in parts if not part.exists()]
    if len(parts) > 1 and missing:
        raise ModelFileError(f"{path} is one of {len(parts)} parts; missing: {', '.join(missing)}")
    return parts
