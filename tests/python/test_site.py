"""The pages of the documentation as they are built."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What a browser fetches by itself; a link is followed by nobody but the reader.
FETCHED = re.compile(r"<(?:script|img|iframe|source|video)\b[^>]*\bsrc=[\"']?([^\"' >]+)|"
                     r"<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|preload|icon|preconnect|manifest))"
                     r"[^>]*\bhref=[\"']?([^\"' >]+)|@import\s+[\"']?([^\"' ;]+)")  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from a copy, so that nobody's is in the way."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    (folder / "python").symlink_to(ROOT / "python")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)
    return folder / "site"


def test_a_page_fetches_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for file in [*pages, *site.rglob("*.css")]:
        found = ("".join(match.groups("")) for match in FETCHED.finditer(file.read_text()))
        elsewhere = [url for url in found if re.match(r"(https?:)?//", url)]
        assert not elsewhere, f"{file.relative_to(site)}: {elsewhere}"


def test_every_public_module_of_resources_has_a_page() -> None:
    pages = (ROOT / "docs/reference/python").glob("*.md")
    shown = {
        line[4:] for page in pages for line in page.read_text().splitlines() if line[:4] == "::: "
    }
    package = ROOT / "python/ginnel"
    for folder in ("remote", "local"):
        files = (package / folder).rglob("*.py")
        named = (file.relative_to(package.parent).with_suffix("") for file in files)
        modules = {".".join(path.parts) for path in named if not path.name.startswith("_")}
        assert modules <= shown, modules - shown
