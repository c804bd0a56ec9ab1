"""Checks that files stay under 500 lines, functions under 60 and signatures under 9 parameters.

EXCEPTIONS may only shrink: each names the file or function and the reason.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 8
SUFFIXES = (".py", ".cpp", ".hpp")
FOLDERS = ("src", "csrc", "tests", "tools", "benchmarks", "examples")
# "path" or "path:function" -> reason
EXCEPTIONS: dict[str, str] = {}


def faults(path: Path) -> Iterator[str]:
    """What is too long in one file."""
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text(encoding="utf-8")
    num_lines = text.count("\n")
    if num_lines > MAX_FILE_LINES and name not in EXCEPTIONS:
        yield f"{name}: {num_lines} lines, at most {MAX_FILE_LINES}"
    if path.suffix != ".py":
        return
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if f"{name}:{node.name}" in EXCEPTIONS:
            continue
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > MAX_FUNCTION_LINES:
            yield f"{name}:{node.lineno}: {node.name} has {length} lines of {MAX_FUNCTION_LINES}"
        positional = len(node.args.posonlyargs) + len(node.args.args)
        if positional > MAX_PARAMETERS:
            yield f"{name}:{node.lineno}: {node.name} has {positional} positional parameters"


def main() -> int:
    """Print every fault; 1 if there was any."""
    paths = [
        path
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in SUFFIXES and "__pycache__" not in path.parts
    ]
    found = [fault for path in paths for fault in faults(path)]
    print("\n".join(found) if found else f"sizes: {len(paths)} files within the limits")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
