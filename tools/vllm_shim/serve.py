"""`vllm serve` as the tests start it: the command of `octavo-vllm`, in a process of its own."""

from __future__ import annotations

import sys

from octavo.compat.vllm.command import main

if __name__ == "__main__":
    sys.exit(main(["serve", *sys.argv[1:]]))
