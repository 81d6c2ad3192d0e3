"""The pages of the documentation as they are built."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import pytest

import ginnel

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


def resource_classes(client: object) -> Iterator[type]:
    """The classes of all resources of a client, also of those below other resources."""
    for name, member in inspect.getmembers(type(client)):
        if isinstance(member, cached_property) and not name.startswith(("_", "with_")):
            resource = getattr(client, name)
            yield type(resource)
            yield from resource_classes(resource)


def public_methods(resource: type) -> Iterator[str]:
    """The public methods of a class, by the names of the classes that define them."""
    for owner in resource.__mro__[:-1]:
        for name, member in vars(owner).items():
            if inspect.isfunction(member) and not name.startswith("_"):
                yield f"{owner.__module__}.{owner.__qualname__}.{name}"


@pytest.mark.parametrize(
    "client",
    [ginnel.RemoteClient("k", base_url="http://127.0.0.1:1"), ginnel.AgentClient()],
    ids=type,
)
def test_every_method_of_every_resource_is_in_the_reference(site: Path, client: object) -> None:
    pages = (site / "reference/python").rglob("*.html")
    shown = {name for page in pages for name in re.findall(r'id="?([\w.]+)', page.read_text())}

    methods = {name for it in resource_classes(client) for name in public_methods(it)}

    assert len(methods) > 30
    assert sorted(methods - shown) == []


@pytest.mark.parametrize(
    "name", ["Pager.pages", "Pager.to_list", "AsyncPager.first", "Page.has_next"]
)
def test_pagers_are_in_the_reference(site: Path, name: str) -> None:
    page = (site / "reference/python/pagers/index.html").read_text()

    assert f"ginnel._core.pager.{name}" in page


def test_links_of_a_built_page_begin_with_the_address_of_the_site(site: Path) -> None:
    page = (site / "operate/public-url/index.html").read_text()

    assert re.search(r'<link rel="?canonical"? href="?https://ginnel\.github\.io/ginnel/', page)
