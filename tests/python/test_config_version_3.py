"""What entries of `endpoints` in files of version 3 do at a service."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import ginnel
from compat import Program, environment, write_launcher
from processes import Upstream, wait_until
from test_certificates import pair

DENIES = "on_http_request:\n  - actions:\n      - {type: custom-response, config: {body: ours}}\n"


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_launcher(tmp_path_factory.mktemp("launcher"))


def written(folder: Path, endpoint: str) -> Path:
    file = folder / "agent.yml"
    file.write_text(f"version: 3\nendpoints:\n  - name: web\n{endpoint}")
    return file


@contextmanager
def started(launcher: Path, service: ginnel.Service, folder: Path, endpoint: str) -> Iterator[Any]:
    """The endpoint as the management API shows it."""
    file = written(folder, endpoint)
    options = ["--config", str(file), "--log", "stdout", "--web-addr", "false"]
    env = environment(service, folder)
    with Program(launcher, "start", "web", *options, env=env), service.client() as remote:
        wait_until(lambda: len(list(remote.endpoints.list())) == 1, "no endpoint")
        yield next(iter(remote.endpoints.list()))


def answer(shown: Any, presented: Path | None = None) -> tuple[bytes, bytes | None]:
    """What a visitor gets over TLS, and the certificate of whoever ended it."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if presented:
        context.load_cert_chain(presented / "chain.pem", presented / "key.pem")
    with (
        socket.create_connection(("127.0.0.1", shown.port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=shown.host) as visitor,
    ):
        visitor.sendall(b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        with visitor.makefile("rb") as response:
            return response.read(), visitor.getpeercert(binary_form=True)


def checked(file: Path) -> str:
    command = [sys.executable, "-m", "ginnel", "config", "check", "--config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout if done.returncode == 0 else done.stderr


def test_a_policy_in_its_own_file_and_a_description_have_their_effect(
    launcher: Path, service: ginnel.Service, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yml"
    policy.write_text(DENIES)
    lines = f"    url: http://\n    description: shop\n    traffic_policy_file: {policy}\n"
    endpoint = f"{lines}    upstream: {{url: 1}}\n"

    with started(launcher, service, tmp_path, endpoint) as shown:
        with urlopen(shown.url, timeout=10) as response:
            assert response.read() == b"ours"
        assert shown.description == "shop"

    assert "is valid" in checked(tmp_path / "agent.yml")
    policy.write_text("on_http_request:\n  - actions: [\n")
    assert f"traffic_policy_file: {policy}:" in checked(tmp_path / "agent.yml")
    policy.unlink()
    assert f"traffic_policy_file: {policy}: No such file" in checked(tmp_path / "agent.yml")


@pytest.mark.parametrize("kind", ["files", "texts"])
def test_tls_ends_at_the_agent(
    launcher: Path, service: ginnel.Service, tmp_path: Path, kind: str
) -> None:
    chain, key = pair()
    (tmp_path / "chain.pem").write_bytes(chain)
    (tmp_path / "key.pem").write_bytes(key)

    def value(name: str) -> str:
        file = tmp_path / name
        lines = file.read_text().replace("\n", "\n          ").rstrip()
        return str(file) if kind == "files" else f"|\n          {lines}"

    with Upstream() as local:
        endpoint = f"""    url: tls://
    upstream: {{url: {local.port}}}
    agent_tls_termination:
      server_certificate: {value("chain.pem")}
      server_private_key: {value("key.pem")}
"""
        with started(launcher, service, tmp_path, endpoint) as shown:
            content, certificate = answer(shown)

    assert content.endswith(b"/x")
    assert certificate == ssl.PEM_cert_to_DER_cert(chain.decode())


def test_certificates_are_asked_for_that_an_authority_has_signed(
    launcher: Path, service: ginnel.Service, tmp_path: Path
) -> None:
    chain, key = pair()
    (tmp_path / "chain.pem").write_bytes(chain)
    (tmp_path / "key.pem").write_bytes(key)
    with Upstream() as local:
        endpoint = f"""    url: tls://
    upstream: {{url: {local.port}}}
    agent_tls_termination:
      server_certificate: {tmp_path}/chain.pem
      server_private_key: {tmp_path}/key.pem
      mutual_tls_certificate_authorities: [{tmp_path}/chain.pem]
"""
        with started(launcher, service, tmp_path, endpoint) as shown:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                answer(shown)
            content, _ = answer(shown, presented=tmp_path)

    assert content.endswith(b"/x")


@pytest.mark.parametrize(
    ("endpoint", "problem"),
    [
        ("    tls: 1\n", 'unknown key "endpoints.web.tls"\n'),
        (
            "    proto: http\n",
            'unknown key "endpoints.web.proto"; did you mean "endpoints.web.url"?',
        ),
        (
            "    url: https://\n    upstream: {url: 1}\n    agent_tls_termination: {}\n",
            "agent_tls_termination: is only for a URL that begins with tls://",
        ),
    ],
)
def test_what_an_endpoint_has_not_is_refused(tmp_path: Path, endpoint: str, problem: str) -> None:
    assert problem in checked(written(tmp_path, endpoint))
