"""Views as phones show them, side by side in one picture."""

from __future__ import annotations

import base64
from pathlib import Path

from playwright.sync_api import BrowserContext

WIDTH, HEIGHT = 380, 780
GAP = 16
GROUNDS = {"light": "#d9dedc", "dark": "#050807"}
"""What is between the views, by the scheme of their colours."""


def side_by_side(context: BrowserContext, views: list[bytes], scheme: str, path: Path) -> None:
    """Puts screenshots of phones beside each other."""
    page = context.new_page()
    width = len(views) * (WIDTH + GAP) + GAP
    page.set_viewport_size({"width": width, "height": HEIGHT + 2 * GAP})
    encoded = [base64.b64encode(view).decode() for view in views]
    images = "".join(
        f'<img alt="" width="{WIDTH}" src="data:image/png;base64,{view}">' for view in encoded
    )
    style = f"display: flex; gap: {GAP}px; margin: 0; padding: {GAP}px;"
    style += f" background: {GROUNDS[scheme]}"
    page.set_content(f'<body style="{style}">{images}</body>')
    page.screenshot(path=path)
    page.close()
