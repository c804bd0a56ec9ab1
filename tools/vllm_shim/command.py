"""The `vllm` command of the tests: `octavo-vllm`, with local models for those that they name."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from octavo.compat.vllm.command import main
from vllm_shim.models import local_model

_MODEL = "--model"


def run(words: Sequence[str]) -> int:
    """Run a command; `--model NAME` becomes the model that stands in, served as NAME."""
    words = list(words)
    if _MODEL in words:
        place = words.index(_MODEL) + 1
        name, words[place] = words[place], local_model(words[place])
        words += ["--served-model-name", name]
    return main(words)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
