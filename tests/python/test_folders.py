"""Folders as local services: types, redirects and names."""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ginnel

if TYPE_CHECKING:
    from collections.abc import Iterator

TYPES = {
    "page.html": "text/html; charset=utf-8",
    "page.xhtml": "application/xhtml+xml",
    "app.webmanifest": "application/manifest+json",
    "app.mjs": "text/javascript; charset=utf-8",
    "photo.AVIF": "image/avif",
    "clip.webm": "video/webm",
    "song.mp3": "audio/mpeg",
    "font.woff": "font/woff",
    "font.woff2": "font/woff2",
    "font.ttf": "font/ttf",
    "table.csv": "text/csv; charset=utf-8",
    "notes.md": "text/plain; charset=utf-8",
    "source.ts": "text/plain; charset=utf-8",
    "README": "text/plain; charset=utf-8",
    "settings.conf-old": "text/plain; charset=utf-8",
    ".profile": "text/plain; charset=utf-8",
}


@pytest.fixture(scope="module")
def agent() -> Iterator[ginnel.Agent]:
    with ginnel.Service() as service, ginnel.Agent(service) as agent:
        yield agent


class Folder:
    """A folder that a tunnel serves."""

    def __init__(self, agent: ginnel.Agent, path: Path) -> None:
        with agent.client() as client:
            name = path.name
            started = client.tunnels.start(
                addr=f"file://{path}", proto="http", name=name, schemes=["http"]
            )
        self.url = str(started.public_url)

    def get(self, target: str) -> tuple[int, dict[str, str], bytes]:
        class Stay(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, *_: object) -> None:
                return None

        try:
            with urllib.request.build_opener(Stay).open(self.url + target, timeout=30) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), error.read()


def test_files_have_the_registered_types(agent: ginnel.Agent, tmp_path: Path) -> None:
    for name in TYPES:
        (tmp_path / name).write_text("some text\n")
    folder = Folder(agent, tmp_path)

    found = {name: folder.get(f"/{name}")[1]["Content-Type"] for name in TYPES}

    assert found == TYPES


def test_what_is_no_text_is_not_shown_as_text(agent: ginnel.Agent, tmp_path: Path) -> None:
    (tmp_path / "core").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "latin").write_bytes("café".encode("latin-1"))
    (tmp_path / "wide.txt").write_bytes("é".encode("utf-16"))
    folder = Folder(agent, tmp_path)

    assert folder.get("/core")[1]["Content-Type"] == "application/octet-stream"
    assert folder.get("/latin")[1]["Content-Type"] == "text/plain"
    assert folder.get("/wide.txt")[1]["Content-Type"] == "text/plain"


def test_the_bytes_that_decide_the_type_are_sent_as_well(
    agent: ginnel.Agent, tmp_path: Path
) -> None:
    content = b"line\n" * 1000
    (tmp_path / "README").write_bytes(content)
    folder = Folder(agent, tmp_path)
    request = urllib.request.Request(f"{folder.url}/README", headers={"Range": "bytes=3-7"})

    with urllib.request.urlopen(request, timeout=30) as answer:
        part = answer.read()

    assert part == content[3:8]
    assert folder.get("/README")[2] == content


def test_the_redirect_to_a_folder_keeps_the_query(agent: ginnel.Agent, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    folder = Folder(agent, tmp_path)

    targets = ["/docs?page=2&q=%20", "/docs", "/docs?"]
    found = [(folder.get(target)[0], folder.get(target)[1]["Location"]) for target in targets]

    assert found == [(301, "/docs/?page=2&q=%20"), (301, "/docs/"), (301, "/docs/?")]
    # A query names no file, and no other host.
    assert folder.get("/docs/?../../etc")[0] == 200
    assert folder.get("//docs")[0] == 404


@pytest.mark.skipif(sys.platform != "linux", reason="names are any bytes on Linux")
def test_names_outside_utf_8_are_listed_and_reached(agent: ginnel.Agent, tmp_path: Path) -> None:
    names = [b"caf\xe9.txt", b"back\\slash", b"percent%41", "größe".encode(), b"line\nbreak"]
    for name in names:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(name)
    inner = os.fsdecode(os.fsencode(tmp_path) + b"/d\xe9")
    os.mkdir(inner)
    Path(inner, "x").write_text("inside")
    folder = Folder(agent, tmp_path)

    listing = folder.get("/")[2].decode()
    links = [part.split('"')[0] for part in listing.split('href="./')[1:]]
    bodies = [folder.get(f"/{link}")[2] for link in links if not link.endswith("/")]

    assert sorted(bodies) == sorted(names)
    assert folder.get("/d%E9")[1]["Location"] == "/d%E9/"
    assert folder.get("/d%e9/x")[2] == b"inside"


def test_names_do_not_lead_out_of_the_folder(agent: ginnel.Agent, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_text("secret")
    folder = Folder(agent, inside)

    for target in ("/%2e%2e/secret", "/..%2fsecret", "/%2fetc%2fpasswd", "/secret%00", "/%ff/../x"):
        status, _, body = folder.get(target)
        assert status in {400, 404}, target
        assert b"secret" not in body
