"""The import hook that makes `vllm` and what is below it out of the table in `names.py`.

Its modules are empty until somebody looks at a name; then the name's home is imported. A name that
is not there is an AttributeError, and an ImportError for those who import it, with the reason.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

from octavo.compat.vllm.names import MODULES, is_known, missing, notice
from octavo.version import version

_ROOT = "vllm"


class VllmFinder(MetaPathFinder):
    """Finds the modules of the table. It comes first, so an installed vLLM is not looked at."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See importlib. Raises ImportError for a module of vLLM's that is not there."""
        if fullname.partition(".")[0] != _ROOT:
            return None
        if is_known(fullname):
            return ModuleSpec(fullname, VllmLoader(), origin="octavo.compat.vllm", is_package=True)
        parent, _, name = fullname.rpartition(".")
        if name == "__main__" and "main" in MODULES[parent]:
            return ModuleSpec(fullname, VllmLoader(), origin="octavo.compat.vllm")
        raise ImportError(missing(parent, name), name=fullname)


class VllmLoader(InspectLoader):
    """Makes one module. Each counts as a package, so that a missing name comes to the finder."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None  # as Python makes modules

    def exec_module(self, module: ModuleType) -> None:
        """Names are looked up when they are asked for."""
        name = module.__name__
        module.__doc__ = f"Octavo under the name {name}."
        vars(module).update(
            __getattr__=lambda attribute: _look_up(module, attribute),
            __dir__=lambda: sorted(MODULES[name]),
            __all__=[one for one in MODULES[name] if not one.startswith("_")],
        )
        if name == _ROOT:
            print(notice(version()), file=sys.stderr)  # noqa: T201 - once, and part of the contract

    def is_package(self, fullname: str) -> bool:
        return fullname in MODULES

    def get_code(self, fullname: str) -> CodeType | None:
        """What `python -m` runs: the `main` of the module, which the finder has seen."""
        home = MODULES[fullname.removesuffix(".__main__")]["main"]
        source = f"import sys\nfrom {home} import main\nsys.exit(main())\n"
        return compile(source, f"<{fullname}>", "exec")

    def get_source(self, fullname: str) -> str | None:
        return None


def install() -> None:
    """Make `import vllm` mean Octavo. Raises ImportError where vLLM itself is imported already."""
    loaded = sys.modules.get(_ROOT)
    if loaded is not None and not isinstance(getattr(loaded, "__loader__", None), VllmLoader):
        raise ImportError("vllm has been imported already: import octavo.compat.vllm before it")
    if not any(isinstance(finder, VllmFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, VllmFinder())


def _look_up(module: ModuleType, attribute: str) -> Any:
    """A name of a module, from its home; a module below it is imported."""
    home = MODULES[module.__name__].get(attribute)
    below = f"{module.__name__}.{attribute}"
    if home is not None:
        place, _, name = home.partition(":")
        value: Any = getattr(import_module(place), name or attribute)
    elif is_known(below):
        value = import_module(below)
    else:
        raise AttributeError(missing(module.__name__, attribute))
    setattr(module, attribute, value)  # the next look finds it at once
    return value
