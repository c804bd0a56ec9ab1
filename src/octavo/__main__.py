"""`python -m octavo` is the command `octavo`.

Until the command runs, Ctrl-C ends the process at once: there is nothing to put in order yet, and
an interrupt among imports would be a traceback, or be lost in the callback of a lock.
"""

from __future__ import annotations

import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else a parent has its reasons
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from octavo.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
