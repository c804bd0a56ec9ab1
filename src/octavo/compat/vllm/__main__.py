"""`python -m octavo.compat.vllm script.py ARGUMENTS`, or `-m MODULE`: run what imports vllm.

It may stay as it is. `-m vllm.entrypoints.openai.api_server` is Octavo's server.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

_USAGE = "usage: python -m octavo.compat.vllm [-m MODULE | SCRIPT.py] [ARGUMENTS]"


def main() -> int:
    """Run the script or module in this process; it finds its arguments where it expects them."""
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help") or words == ["-m"]:
        print(_USAGE)  # noqa: T201 - a command line
        return 0 if words and words != ["-m"] else 2
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path[0] = str(Path(words[0]).resolve().parent)
        runpy.run_path(words[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
