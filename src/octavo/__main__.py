"""`python -m octavo` is the command `octavo`.

Until the command runs, Ctrl-C ends the process at once: there is nothing to put in order yet, and
an interrupt among imports would be a traceback, or be lost in the callback of a lock.
"""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Run the command that the process was started for; the exit code is returned."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else a parent's reasons
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from octavo.cli.main import main as run  # noqa: PLC0415 - see above

    return run()


if __name__ == "__main__":
    sys.exit(main())
