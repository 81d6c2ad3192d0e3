"""The `ginnel` command."""

from __future__ import annotations

import signal
import sys

from ._native import main as run


def main(program: str = "ginnel") -> None:
    """Run the command with the arguments of this process, as the program of this name."""
    # The command handles signals itself.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(run([program, *sys.argv[1:]]))


if __name__ == "__main__":
    main()
