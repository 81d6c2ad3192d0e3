"""Clients of the operator change while the service runs, and their secrets are shown nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from issuer import CLIENT_ID, Call, Issuer
from test_oauth_applications import SHOW, oauth
from test_openid_connect import code
from test_reload import Running
from test_settings import shown
from visitor import Visitor

HOST = "localhost"
FIRST, SECOND = "the-first-secret", "the-second-secret"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


def settings(issuer: Issuer, secret: str | None) -> str:
    client = f"client_id: {CLIENT_ID}, client_secret: {secret}, " if secret else ""
    place = f"oauth:\n  google: {{{client}issuer_url: '{issuer.url}'}}\n"
    return f"http_port: 0\nlog_level: debug\n{place}"


class At:
    """An edge of a running service, with the policy of a login."""

    def __init__(self, running: Running) -> None:
        remote = running.client
        edge = remote.edges.https.create(hostports=[f"{HOST}:80", f"{HOST}:443"])
        remote.edges.https.routes.create(
            edge.id,
            match_type="path_prefix",
            match="/",
            policy={"inbound": [oauth(SHOW)]},
        )
        self.service: Any = SimpleNamespace(http_url=running.said["http_url"], https_url=None)

    def visitor(self) -> Visitor:
        return Visitor(self.service, HOST, secure=False)


def test_a_client_follows_the_file_and_nobody_is_shown_its_secret(
    tmp_path: Path, issuer: Issuer
) -> None:
    secrets: list[str] = []

    def token(call: Call) -> None:
        secrets.append(call.basic()[1])
        call.say(200, issuer.tokens(issuer.codes.pop(call.form["code"])["nonce"]))

    issuer.answers["/token"] = token
    running = Running(tmp_path, settings(issuer, FIRST))
    with running.command:
        at = At(running)
        first = at.visitor()
        first.log_in()
        assert first.go().body == "ada@example.com"

        running.reload(settings(issuer, SECOND), "reloaded: oauth.google.client_secret")
        assert first.go().status == 302, "a session of another secret is none of this one"
        second = at.visitor()
        second.log_in()
        assert second.go().body == "ada@example.com"
        assert secrets == [FIRST, SECOND]

        issuer.answers["/token"] = lambda call: call.say(401, {"error": "invalid_client"})
        assert at.visitor().log_in().status == 403
        running.reload(settings(issuer, None), "reloaded: oauth.google.client_")
        taken = second.go()
        assert (taken.status, code(taken.headers)) == (500, "3452")

        running.reload(settings(issuer, SECOND), "reloaded: oauth.google.client_")
        assert second.go().body == "ada@example.com"

        said = "\n".join(running.command.complaints)
        audit = repr(running.client.audit_events.list().to_list())
        rows = repr(shown("--config", str(running.path)))
        assert "oauth.google.client_secret" in rows
        assert "invalid_client" in said
        gone = [line for line in running.command.complaints if "answer 500 (code 3452)" in line]
        assert len(gone) == 1
        assert "oauth.google.client_id" in gone[0]
        for text in (said, audit, rows):
            assert FIRST not in text
            assert SECOND not in text
