"""Logins at issuers that others have written, in a browser where they have forms."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from playwright.sync_api import Browser, expect

import ginnel
from addresses import free_port
from issuer import CLIENT_ID, CLIENT_SECRET
from processes import wait_until
from recorder import Recorder, value_of

ROOT = Path(__file__).parents[2]
MODULES = ROOT / "target" / "issuer" / "node_modules"
HOST = "login.localhost"


@contextmanager
def running(port: int, *command: str, **options: Any) -> Iterator[str]:
    """An issuer in a process of its own."""
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, **options)

    def answers() -> bool:
        assert process.poll() is None, "the issuer has ended"
        try:
            with urlopen(f"{url}/.well-known/openid-configuration"):
                return True
        except OSError:
            return False

    try:
        wait_until(answers, "the issuer answers")
        yield url
    finally:
        process.terminate()
        process.wait()


def protect(service: ginnel.Service, upstream: Recorder, **fields: Any) -> str:
    """Puts the module on a route; gives its address."""
    with service.client() as remote:
        backend = remote.backends.static.create(address=upstream.address)
        edge = remote.edges.https.create(hostports=[f"{HOST}:80"])
        remote.edges.https.routes.create(
            edge.id,
            match_type="path_prefix",
            match="/",
            backend={"backend_id": backend.id},
            oidc={"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET, **fields},
        )
    assert service.http_url is not None
    return f"http://{HOST}:{service.http_url.rpartition(':')[2].rstrip('/')}"


def test_a_login_at_a_certified_issuer(service: ginnel.Service, browser: Browser) -> None:
    """`oidc-provider` checks what it is asked more strictly than others do."""
    node = shutil.which("node")
    assert node, "no Node.js was found; tests/install-packages installs it"
    assert MODULES.is_dir(), "tests/install-issuer installs the issuer"
    script = MODULES.parent / "issuer.mjs"
    shutil.copy(ROOT / "tests" / "issuer.mjs", script)
    port = free_port()
    with Recorder() as upstream:
        scopes = ["email", "profile", "groups", "offline_access"]
        address = protect(service, upstream, issuer=f"http://127.0.0.1:{port}", scopes=scopes)
        command = [node, str(script), str(port), f"{address}/ngrok/callback"]
        with running(port, *command, cwd=script.parent, stderr=subprocess.DEVNULL):
            context = browser.new_context()
            page = context.new_page()

            page.goto(f"{address}/page?a=b")
            page.locator("input[name=login]").fill("ada")
            page.locator("input[name=password]").fill("anything")
            page.locator("button[type=submit]").click()
            page.locator("button[type=submit]").click()

            page.wait_for_url(f"{address}/page?a=b")
            expect(page.locator("body")).to_contain_text("GET /page?a=b")
            assert value_of(upstream.last, b"ngrok-auth-user-email") == b"ada@example.com"
            assert value_of(upstream.last, b"ngrok-auth-user-name") == b"ada of the tests"
            assert value_of(upstream.last, b"cookie") is None
            status = page.evaluate("fetch('/data').then(answer => answer.status)")
            assert status == 200, "a script of the page has the session too"

            page.goto(f"{address}/ngrok/logout")
            expect(page.locator("body")).to_contain_text("You are logged out")
            status = page.evaluate("fetch('/data').then(answer => answer.status)")
            assert status == 401
            context.close()


def test_a_login_at_an_issuer_for_tests(service: ginnel.Service, browser: Browser) -> None:
    """`oidc-provider-mock`, which knows other libraries."""
    port = free_port()
    with Recorder() as upstream:
        # It takes escapes in the header of a client for a part of its name.
        plain = {"client_id": "client", "client_secret": "secret"}
        address = protect(service, upstream, issuer=f"http://127.0.0.1:{port}", **plain)
        command = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "--port", str(port)]
        with running(port, *command, stderr=subprocess.DEVNULL):
            context = browser.new_context()
            page = context.new_page()

            page.goto(f"{address}/page")
            page.locator("input[name=sub]").fill("ada@example.com")
            page.locator("button[type=submit]").first.click()

            page.wait_for_url(f"{address}/page")
            assert value_of(upstream.last, b"ngrok-auth-user-id") == b"ada@example.com"
            context.close()
