"""Errors name the field, the value, the cause and the remedy, and show no password."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme

import ginnel
from ginnel.service_settings import ServiceSettings

PASSWORD = "zq7marker91"
NOWHERE = "http://127.0.0.1:1"
LOGINS = [
    f"http://ada:{PASSWORD}@a.test:99999/x",
    f"http://ada:{PASSWORD}@a.test?q#f",
    f"ada:{PASSWORD}@a.test:80",
    f"{PASSWORD}@a.test:80",
    f"postgres://ada:{PASSWORD}@a.test:99999/db",
    f"postgres:/ada:{PASSWORD}@a.test/db",
    f'ada:"{PASSWORD}\\@a.test:80',
]


def run(
    *arguments: str | Path, folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ginnel", *map(str, arguments)]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **environment}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        cwd=folder,
        check=False,
    )


def raised(call: Callable[[], Any]) -> str:
    """The text of an error; nothing if there is none."""
    try:
        made = call()
    except (ginnel.GinnelError, ValueError) as error:
        return f"{error} {error!r}"
    if hasattr(made, "stop"):
        made.stop()
    return ""


AGENT: dict[str, Callable[[str], Any]] = {
    "server_addr": lambda login: ginnel.Agent(server_addr=login, authtoken="x", timeout=1),
    "web_addr": lambda login: ginnel.Agent(
        server_addr="127.0.0.1:1", authtoken="x", web_addr=login, timeout=1
    ),
    "web_allow_hosts": lambda login: ginnel.Agent(
        server_addr="127.0.0.1:1", authtoken="x", web_allow_hosts=[login], timeout=1
    ),
    "admin_addr": lambda login: ginnel.Agent(
        server_addr="127.0.0.1:1", authtoken="x", admin_addr=login, timeout=1
    ),
}
SERVICE: dict[str, Callable[[str], Any]] = {
    "public_url": lambda login: ginnel.Service(public_url=login),
    "admin_addr": lambda login: ginnel.Service(admin_addr=login),
    "store": lambda login: ginnel.Service(store=login),
    "trusted_proxies": lambda login: ginnel.Service(trusted_proxies=[login]),
    "base_domain": lambda login: ginnel.Service(base_domain=login),
    "host": lambda login: ginnel.Service(host=login),
    "edge_host": lambda login: ginnel.Service(edge_host=login),
    "acme.directory": lambda login: ginnel.Service(
        settings=ServiceSettings(acme={"directory": login, "agree_to_terms": True})
    ),
}
CLIENT: dict[str, Callable[[str], Any]] = {
    "base_url": lambda login: ginnel.RemoteClient("k", base_url=login),
    "proxy": lambda login: ginnel.RemoteClient(
        "k", base_url="https://a.test", proxy=f"ftp://{login}"
    ),
}


@pytest.mark.parametrize("login", LOGINS)
def test_an_error_names_its_field_and_shows_no_password(
    login: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "ginnel")

    for field, call in (AGENT | SERVICE | CLIENT).items():
        text = raised(partial(call, login))

        assert text, f"{field}: {login} is accepted"
        assert PASSWORD not in text, field
        # The store is named by the form that its address has.
        assert field in text or (field == "store" and "database" in text), text
    assert PASSWORD not in caplog.text


def test_an_address_of_a_database_in_another_form_shows_no_password() -> None:
    for address in (
        f"host=a.test password={PASSWORD}",
        f"postgres://a.test/db?password={PASSWORD}",
    ):
        text = raised(partial(ginnel.Service, store=address))

        assert "address" in text
        assert PASSWORD not in text


@pytest.mark.parametrize(
    ("flag", "login"),
    [
        ("--server-addr", LOGINS[0]),
        ("--server-addr", LOGINS[3]),
        ("--web-addr", LOGINS[2]),
        ("--admin-addr", LOGINS[3]),
        ("--log-level", LOGINS[-1]),
    ],
)
def test_a_flag_is_refused_without_its_password(flag: str, login: str, tmp_path: Path) -> None:
    done = run("http", "9", flag, login, folder=tmp_path)

    assert done.returncode == 2
    assert flag in done.stderr
    assert PASSWORD not in done.stderr


@pytest.fixture(scope="module")
def local() -> Any:
    with ginnel.Service() as service, ginnel.Agent(service) as agent, agent.client() as local:
        yield local


@pytest.mark.parametrize("login", LOGINS[:4])
def test_a_tunnel_is_refused_without_its_password(local: Any, login: str) -> None:
    for field in ("addr", "domain", "hostname", "remote_addr", "host_header"):
        proto = "tcp" if field == "remote_addr" else "http"
        fields: dict[str, Any] = {"addr": 9, "proto": proto, "name": "web", field: login}

        text = raised(partial(local.tunnels.start, **fields))

        if text or field != "host_header":
            assert f"{field}: " in text
        assert PASSWORD not in text
        local.tunnels.stop("web") if not text else None


@pytest.mark.parametrize(
    ("addr", "problem"),
    [
        ("unix:", "has no path; write unix:/run/app.sock"),
        ("unix:app.sock", "does not name an absolute path"),
        ("unix:/run/../app.sock", "has `..` in its path"),
        ("unix:/run/", "has an empty name in its path"),
        ("unix:/" + "x" * 107, "more than 107 bytes; move the socket"),
        ("0", "is not a port from 1 to 65535"),
        ("70000", "is not a port from 1 to 65535"),
        ("a.test:0", "a port that is not a decimal number from 1 to 65535"),
        ("http://a.test:0", "a port that is not a decimal number from 1 to 65535"),
    ],
)
def test_an_address_that_cannot_be_is_explained(local: Any, addr: str, problem: str) -> None:
    text = raised(lambda: local.tunnels.start(addr=addr, proto="http", name="web"))

    assert f'addr: "{addr}" ' in text
    assert problem in text


def test_values_of_the_management_api_are_explained() -> None:
    pem = trustme.CA().cert_pem.bytes().decode()
    with ginnel.Service() as service, service.client() as remote:
        refused: list[tuple[Callable[[], object], str]] = [
            (lambda: remote.reserved_domains.create(domain="127.0.0.1"), "is an IP address"),
            (lambda: remote.reserved_domains.create(domain="[::1]"), "is an IP address"),
            (lambda: remote.reserved_domains.create(domain="a.test:443"), "has a port"),
            (lambda: remote.reserved_domains.create(domain="http://a.test"), "is a URL"),
            (
                lambda: remote.backends.static.create(
                    address="a.test:443", tls={"enabled": True, "server_name": "a.test:443"}
                ),
                "tls.server_name: .* has a port, which is not supported here; write only the host",
            ),
            (
                lambda: remote.backends.static.create(
                    address="a.test:443", tls={"enabled": True, "server_name": "https://a.test"}
                ),
                "tls.server_name: .* is a URL; write only the host",
            ),
        ]
        for call, problem in refused:
            with pytest.raises(ginnel.BadRequestError, match=problem):
                call()
        marked = remote.backends.static.create(
            address="a.test:443", tls={"enabled": True, "ca": "\ufeff" + pem}
        )
        assert marked.tls
        assert marked.tls.ca == pem
        signed = remote.certificate_authorities.create(ca_pem="\ufeff" + pem)
        assert signed.key_usages


def test_pem_files_of_windows_editors_are_read(tmp_path: Path) -> None:
    with ginnel.Service() as service:
        bundle = tmp_path / "ca.pem"
        bundle.write_bytes(b"\xef\xbb\xbf" + service.ca_pem.encode())
        with ginnel.Agent(
            server_addr=service.agent_addr, authtoken=service.authtoken, ca=bundle
        ) as agent:
            assert agent.state == "online"


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"one\ntwo\n", "more than one line"), (b"one\rtwo", "more than one line"), (b"\n", "empty")],
)
def test_a_secret_file_that_has_another_form_is_explained(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)

    done = run("serve", "--check", folder=tmp_path, GINNEL_AUTHTOKEN_FILE=str(path))

    assert done.returncode == 2
    assert str(path) in done.stderr
    assert problem in done.stderr


def test_a_store_that_is_a_file_is_explained(tmp_path: Path) -> None:
    done = run("serve", "--check", "--store", ":memory:", folder=tmp_path)

    assert done.returncode == 2
    assert '":memory:" is not an address such as postgres://' in done.stderr
    assert "a file of SQLite belongs to `path`" in done.stderr


@pytest.mark.parametrize("content", [b"port: 80\n" * 20, b"SQLite format 2\0", b"x"])
def test_a_database_that_is_another_file_is_refused_by_a_check(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "g.db").write_bytes(content)

    checked, started = (
        run("serve", *check, "--path", "g.db", "--port", "0", folder=tmp_path)
        for check in (["--check"], [])
    )

    assert "--path: g.db: is not a database" in checked.stderr
    assert (checked.returncode, started.returncode) == (2, 4)
    assert "is not a database" in started.stderr


@pytest.mark.parametrize("text", ['"a.test:1\\n"', "|\n  a.test:1\n", '["a.test:1\\n"]'])
def test_an_address_in_a_block_is_read_or_refused_with_its_field(tmp_path: Path, text: str) -> None:
    (tmp_path / "g.yml").write_text(f"version: 2\nserver_addr: {text}\n")

    done = run("config", "show", "--agent", "--config", "g.yml", folder=tmp_path)

    if done.returncode:
        assert "server_addr: " in done.stderr
        assert "a.test:1" in done.stderr
    else:
        [row] = [line for line in done.stdout.splitlines() if line.startswith("server_addr")]
        assert row.split()[1] == "a.test:1"


def secret_files(folder: Path) -> dict[str, tuple[list[str], dict[str, str], Path]]:
    """Commands that read a secret file, with variables and the file."""
    certificate = trustme.CA().issue_cert("a.test")
    chain, key = folder / "chain.pem", folder / "key.pem"
    certificate.cert_chain_pems[0].write_to_path(chain)
    certificate.private_key_pem.write_to_path(key)
    secret, vault = folder / "secret", folder / "vault"
    secret.write_text("a" * 27 + "_1" + "b" * 20)
    vault.write_text("A" * 43 + "=")
    agent = folder / "agent.yml"
    agent.write_text(f"version: 2\nauthtoken_file: {secret}\n")
    tunnel = folder / "tunnel.yml"
    tunnel.write_text(
        "version: 2\ntunnels:\n  web: {proto: tls, addr: 9, terminate_at: agent, "
        f"crt: {chain}, key: {key}}}\n"
    )
    endpoint = folder / "endpoint.yml"
    endpoint.write_text(
        "version: 3\nendpoints:\n  - name: web\n    url: tls://\n"
        "    upstream: {url: 'localhost:9'}\n"
        f"    agent_tls_termination: {{server_certificate: {chain}, server_private_key: {key}}}\n"
    )
    both = folder / "both.pem"
    both.write_bytes(chain.read_bytes() + key.read_bytes())
    login = folder / "serve.yml"
    login.write_text(f"oauth: {{google: {{client_id: a, client_secret_file: {secret}}}}}\n")
    check, call = ["serve", "--check"], ["api", "api-keys", "list", "--base-url", NOWHERE]
    return {
        "admin key": ([*check, "--admin-key-file", str(secret)], {}, secret),
        "admin key variable": (check, {"GINNEL_ADMIN_KEY_FILE": str(secret)}, secret),
        "authtoken variable": (check, {"GINNEL_AUTHTOKEN_FILE": str(secret)}, secret),
        "vault key": (check, {"GINNEL_VAULT_KEY_FILE": str(vault)}, vault),
        "certificate key": (
            [*check, "--certificate", str(chain), "--certificate-key", str(key)],
            {},
            key,
        ),
        "oauth": ([*check, "--config", str(login)], {}, secret),
        "agent": (["config", "check", "--config", str(agent)], {}, secret),
        "agent variable": (["config", "check"], {"GINNEL_AUTHTOKEN_FILE": str(secret)}, secret),
        "tunnel key": (["config", "check", "--config", str(tunnel)], {}, key),
        "endpoint key": (["config", "check", "--config", str(endpoint)], {}, key),
        "client key": (
            [*call, "--client-cert", str(chain), "--client-key", str(key)],
            {"GINNEL_API_KEY": "k"},
            key,
        ),
        "client key variable": (
            call,
            {"GINNEL_API_KEY": "k", "GINNEL_CLIENT_CERT": str(both)},
            both,
        ),
        "client": (
            [*call, "--api-key-file", str(secret)],
            {},
            secret,
        ),
    }


@pytest.mark.skipif(sys.platform == "win32", reason="modes of files")
@pytest.mark.parametrize(
    "way",
    [
        "admin key",
        "admin key variable",
        "authtoken variable",
        "vault key",
        "certificate key",
        "oauth",
        "agent",
        "agent variable",
        "tunnel key",
        "endpoint key",
        "client",
        "client key",
        "client key variable",
    ],
)
def test_a_secret_file_that_others_may_read_is_reported(tmp_path: Path, way: str) -> None:
    arguments, variables, path = secret_files(tmp_path)[way]

    modes = [(0o644, 1), (0o600, 0)] if way == "authtoken variable" else [(0o644, 1)]
    for mode, times in modes:
        path.chmod(mode)
        done = run(*arguments, folder=tmp_path, **variables)

        found = done.stderr.count(f"may read the secret file {path}; chmod o-r")
        assert found == times, done.stderr
