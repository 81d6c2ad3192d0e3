"""The command as a program called `ngrok`."""

from __future__ import annotations

from ..__main__ import main

if __name__ == "__main__":
    main("ngrok")
