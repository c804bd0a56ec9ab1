"""Checks that imports only go down, that torch stays where it belongs, and that nothing is hidden.

The table is section 2 of the architecture: two columns, deciding and computing, that never import
each other. Imports inside functions and under TYPE_CHECKING count as well. An import inside a
function is allowed only for the reasons listed in LAZY_OK.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "octavo"

WORDS = {
    "errors",
    "version",
    "foundation",
    "config",
    "contracts",
    "sampling_params",
    "pooling_params",
    "outputs",
    "prompts",
}
TEXT = WORDS | {"text", "chat", "structured"}
# package -> what it may import besides itself
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "version": set(),
    "foundation": {"errors"},
    "config": {"errors", "foundation"},
    "sampling_params": {"errors"},
    "pooling_params": {"errors"},
    "contracts": {"errors", "foundation", "config"},
    "outputs": {"errors", "contracts", "sampling_params"},
    "prompts": set(),
    "text": WORDS,
    "chat": WORDS | {"text"},
    "structured": WORDS,
    "logits_processors": WORDS,
    "ops": {"errors", "foundation", "config"},
    "kvcache": WORDS,
    "scheduling": WORDS | {"kvcache"},
    "weights": WORDS | {"text", "_native"},  # which makes rows of quantised tables
    "models": WORDS | {"ops"},
    "backends": WORDS | {"ops", "models", "weights", "logits_processors", "_native"},
    "sizing": WORDS | {"ops", "weights", "models"},
    "runner": WORDS | {"ops", "weights", "models", "backends", "logits_processors", "_native"},
    "kvtier": WORDS,
    "executor": WORDS | {"weights", "models", "runner", "kvtier"},
    "engine": TEXT | {"weights", "kvcache", "scheduling", "executor", "logits_processors"},
    "inputs": WORDS,
    "llm_pooling": TEXT | {"engine", "inputs"},
    "llm": TEXT | {"engine", "inputs", "llm_pooling"},
    "server": TEXT | {"engine"},
    "observability": set(),
    "cli": TEXT
    | {"engine", "llm", "server", "observability", "weights", "runner", "sizing", "_native"},
    "entrypoints": {"cli"},
    "compat": TEXT | {"engine", "llm", "cli", "entrypoints"},
    "__main__": {"cli"},
    "__init__": TEXT | {"engine", "llm"},  # names only, resolved on first use
}
TORCH_HOMES = ("backends/torch/",)
TRANSFORMERS_HOME = "backends/torch/foreign/"
FORBIDDEN = {"transformers", "numpy", "safetensors", "gguf"}
# Where an import inside a function is allowed, and why.
LAZY_OK = {
    "cli/": "start-up time of the command line",
    "foundation/registry.py": "the registry's purpose",
    "__main__.py": "Ctrl-C among imports is put in order first",
    "__init__.py": "public names are resolved on first use",
}
LAZY_PACKAGES = {"huggingface_hub", "jinja2", "uvloop", "torch", "tokenizers", "zmq"}


def imports(tree: ast.AST) -> Iterator[tuple[str, int, bool]]:
    """Every (module, line, is inside a function) that a file imports."""

    def walk(node: ast.AST, inside: bool) -> Iterator[tuple[str, int, bool]]:
        for child in ast.iter_child_nodes(node):
            within = inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            if isinstance(child, ast.Import):
                for name in child.names:
                    yield name.name, child.lineno, inside
            elif isinstance(child, ast.ImportFrom):
                base = "." * child.level + (child.module or "")
                if base == "octavo":
                    for name in child.names:
                        yield f"octavo.{name.name}", child.lineno, inside
                else:
                    yield base, child.lineno, inside
            else:
                yield from walk(child, within)

    yield from walk(tree, False)


def faults(path: Path) -> Iterator[str]:
    """What is wrong with the imports of one file."""
    relative = path.relative_to(SOURCE).as_posix()
    package = relative.split("/")[0].removesuffix(".py")
    if package not in ALLOWED:
        yield f"{relative}: package {package!r} is not in the layer table"
        return
    for module, line, inside in imports(ast.parse(path.read_text(encoding="utf-8"))):
        where = f"src/octavo/{relative}:{line}"
        top = module.split(".")[0]
        if module.startswith("."):
            yield f"{where}: relative import"
        elif top == "octavo":
            target = module.split(".")[1] if "." in module else "__init__"
            if target != package and target not in ALLOWED[package] and target != "__init__":
                yield f"{where}: {package} may not import {target}"
            if inside and not relative.startswith(tuple(LAZY_OK)):
                yield f"{where}: import of {module} hidden in a function"
        elif top == "torch" and not relative.startswith(TORCH_HOMES):
            yield f"{where}: torch outside {', '.join(TORCH_HOMES)}"
        elif top == "transformers" and relative.startswith(TORCH_HOMES):
            if not relative.startswith(TRANSFORMERS_HOME):
                yield f"{where}: transformers outside {TRANSFORMERS_HOME}"
        elif top in FORBIDDEN and not relative.startswith(TORCH_HOMES):
            yield f"{where}: {top} is not a dependency of the package"
        elif (
            inside
            and top not in sys.stdlib_module_names
            and top not in LAZY_PACKAGES
            and not relative.startswith(tuple(LAZY_OK))
        ):
            yield f"{where}: import of {module} hidden in a function"


def main() -> int:
    """Print every fault; 1 if there was any."""
    found = [fault for path in sorted(SOURCE.rglob("*.py")) for fault in faults(path)]
    print("\n".join(found) if found else "layers: imports only go down")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
