"""Checks that documents tell the truth: back-quoted paths, flags and symbols in *.md exist.

A back-quoted word counts as a path when it holds a slash or ends in a source suffix, as a flag when
it starts with two dashes, and as an environment variable when it starts with OCTAVO_. Links between
documents must lead somewhere. Neither the project's text nor its results files carry places of one
machine.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATH_SUFFIXES = (".py", ".md", ".hpp", ".cpp", ".toml", ".json", ".txt", ".jinja")
ROOTS = (ROOT, ROOT / "src" / "octavo", ROOT / "csrc")
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
FOREIGN = re.compile(r"(?<![\w./~])/(work|farm|root|home)/")
LOCAL = re.compile(r"(?<![\w./~])/(?:farm|home|mnt|private|root|tmp|Users|var|work)/")


def documents() -> list[Path]:
    """Every Markdown file of the project."""
    return sorted(
        [*ROOT.glob("*.md"), *(ROOT / "examples").glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    )


def known_flags() -> set[str]:
    """Every --flag that the sources define or mention."""
    sys.path.insert(0, str(ROOT / "src"))
    from octavo.config import engine, server, vllm_options  # noqa: PLC0415 - the path is set up
    from octavo.config.field import flag_name  # noqa: PLC0415
    from octavo.config.speculative import SHORT_FORMS  # noqa: PLC0415

    parts = engine.EngineConfig.__dataclass_fields__.values()
    configs = (*(part.default_factory for part in parts), server.ServerConfig)
    flags = {flag_name(name) for config in configs for name in config.__dataclass_fields__}
    tables = (
        *(vllm_options.ENGINE_OPTIONS, vllm_options.REMOVED_OPTIONS),
        *(vllm_options.SERVER_OPTIONS, vllm_options.BATCH_OPTIONS),
    )
    flags.update(flag_name(row.name) for table in tables for row in table)
    flags.update(map(flag_name, SHORT_FORMS))
    for path in (ROOT / "src" / "octavo" / "cli").rglob("*.py"):
        flags.update(re.findall(r"--[a-z][a-z0-9-]+", path.read_text(encoding="utf-8")))
    return flags


def known_variables() -> set[str]:
    """Every OCTAVO_ variable in the sources."""
    found: set[str] = set()
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        found.update(re.findall(r"OCTAVO_[A-Z_]+", path.read_text(encoding="utf-8")))
    return found


def faults(path: Path, flags: set[str], variables: set[str]) -> Iterator[str]:
    """What one document claims that is not so."""
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text(encoding="utf-8")
    if FOREIGN.search(text):
        yield f"{name}: names a place of one machine"
    prose = FENCE.sub("", text)
    for word in CODE.findall(prose):
        if word.startswith("--"):
            flag = re.split(r"[ =.]", word)[0].replace("_", "-")
            if flag.removeprefix("--no-") != flag:
                flag = "--" + flag.removeprefix("--no-")
            if flag not in flags:
                yield f"{name}: flag `{word}` does not exist"
        elif re.fullmatch(r"OCTAVO_[A-Z_]+", word):
            if word not in variables:
                yield f"{name}: variable `{word}` does not exist"
        elif is_path(word) and not any((root / word).exists() for root in ROOTS):
            yield f"{name}: `{word}` does not exist"
    for target in LINK.findall(prose):
        if "://" not in target and not (path.parent / target).exists():
            yield f"{name}: link to {target} leads nowhere"


def result_faults(path: Path) -> Iterator[str]:
    """What a file of measurements tells of the machine's folders."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if LOCAL.search(line):
            yield f"{path.name}:{number}: names a place of one machine"


def is_path(word: str) -> bool:
    """Whether a back-quoted word is meant as a file or folder of the project."""
    if not re.fullmatch(r"[\w.][\w./-]*", word):
        return False
    if word.endswith(PATH_SUFFIXES):
        return "/" in word or (ROOT / "src" / "octavo" / word).exists()
    return word.endswith("/") and word.count("/") >= 1


def main() -> int:
    """Print every fault; 1 if there was any."""
    flags, variables = known_flags(), known_variables()
    found = [fault for path in documents() for fault in faults(path, flags, variables)]
    results = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    found += [fault for path in results for fault in result_faults(path)]
    print(
        "\n".join(found) if found else f"docs: {len(documents())} documents agree with the sources"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
