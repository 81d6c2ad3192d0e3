"""Agents that reach their service through proxies."""

from __future__ import annotations

import ssl
import subprocess
import sys
import urllib.request
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ginnel
from addresses import free_port
from processes import Upstream, wait_until
from proxies import ConnectProxy, Proxy, SocksProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

REFUSED = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"
NAMES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def service() -> Iterator[ginnel.Service]:
    with ginnel.Service() as service:
        yield service


def target(service: ginnel.Service) -> str:
    return f"127.0.0.1:{str(service.agent_addr).rpartition(':')[2]}"


def works(agent: ginnel.Agent) -> bool:
    """True if a visitor reaches a tunnel of the agent."""
    with Upstream() as local, agent.client() as client:
        tunnel = client.tunnels.start(addr=local.port, proto="http", name="app", schemes=["http"])
        with urllib.request.urlopen(str(tunnel.public_url), timeout=30) as answer:
            return bool(answer.status == 200)


# The certificate of the service has this machine's names. A proxy leads to it by another one.
NAME = "localhost"


def test_http_proxies_are_asked_for_a_tunnel_with_the_login(service: ginnel.Service) -> None:
    port = target(service).rpartition(":")[2]
    with ConnectProxy(target(service)) as proxy:
        url = proxy.url.replace("://", "://me:p%40ss@")
        with ginnel.Agent(service, server_addr=f"{NAME}:{port}", proxy_url=url) as agent:
            assert works(agent)

    assert proxy.heads[0].startswith(f"CONNECT {NAME}:{port} HTTP/1.1\r\n")
    assert "proxy-authorization: Basic bWU6cEBzcw==\r\n" in proxy.heads[0]


@pytest.mark.parametrize(("scheme", "asked"), [("socks5h", NAME), ("socks5", "127.0.0.1")])
def test_socks_proxies_get_the_name_or_the_address(
    scheme: str, asked: str, service: ginnel.Service
) -> None:
    port = int(target(service).rpartition(":")[2])
    with SocksProxy(target(service), login=(b"me", b"secret")) as proxy:
        url = f"{scheme}://me:secret@{proxy.address}"
        with ginnel.Agent(service, server_addr=f"{NAME}:{port}", proxy_url=url) as agent:
            assert works(agent)

    assert proxy.asked[0][1] == port
    assert proxy.asked[0][0] in {asked, "::1"}


def test_a_proxy_over_tls_is_spoken_to_over_tls(service: ginnel.Service, tmp_path: Path) -> None:
    chain, key = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    both = tmp_path / "both.pem"
    both.write_text(service.ca_pem + chain.read_text())
    with ConnectProxy(target(service), tls=context) as proxy:
        port = proxy.address.rpartition(":")[2]
        url = f"https://localhost:{port}"
        with ginnel.Agent(service, ca=both, proxy_url=url) as agent:
            assert works(agent)

    assert len(proxy.heads) >= 1


def certificate(folder: Path) -> tuple[Path, Path]:
    chain, key = folder / "proxy.pem", folder / "proxy.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", str(key)]
    command += ["-out", str(chain), "-addext", "subjectAltName=DNS:localhost"]
    command += ["-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run(command, check=True, capture_output=True)
    return chain, key


def start(service: ginnel.Service, address: str, **options: Any) -> str | None:
    """Starts an agent that is not online within two seconds; the problem, or none."""
    try:
        with ginnel.Agent(service, server_addr=address, timeout=2, **options):
            return None
    except ginnel.AgentError as error:
        return str(error)


def test_the_environment_names_the_proxy_for_other_machines(
    service: ginnel.Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "tunnels.corp.test:4443"
    with ConnectProxy(target(service)) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        assert start(service, name) is None
        assert proxy.heads
        assert proxy.heads[0].startswith(f"CONNECT {name} ")
        asked = len(proxy.heads)

        monkeypatch.setenv("NO_PROXY", "corp.test")
        assert start(service, name) is not None
        assert start(service, target(service)) is None, "this machine needs no proxy"
        assert len(proxy.heads) == asked


def test_a_proxy_that_refuses_is_named_and_its_password_is_not(service: ginnel.Service) -> None:
    with ConnectProxy(target(service), answers=[REFUSED]) as proxy:
        url = proxy.url.replace("://", "://me:swordfish@")
        problem = start(service, target(service), proxy_url=url)

    assert problem is not None
    assert f"the proxy {proxy.url}" in problem
    assert "407 Proxy Authentication Required" in problem
    assert "swordfish" not in problem


def test_a_proxy_that_does_nothing_is_given_up(service: ginnel.Service) -> None:
    class Silent(Proxy):
        def open(self, stream: Any) -> bool:
            return bool(stream.recv(1) and stream.recv(1 << 16) and stream.recv(1))

    with Silent(target(service)) as proxy:
        problem = start(service, target(service), proxy_url=f"http://{proxy.address}")

    assert problem is not None
    assert "no response" in problem or "not online" in problem or "connecting" in problem


def test_what_is_no_proxy_is_refused_at_once(service: ginnel.Service) -> None:
    for url in ("ftp://me:swordfish@proxy", "socks4://proxy", "proxy:port"):
        with pytest.raises(ginnel.ConfigError, match="proxy_url") as refused:
            ginnel.Agent(service, proxy_url=url)
        assert "swordfish" not in str(refused.value)


def test_files_and_variables_name_the_proxy(service: ginnel.Service, tmp_path: Path) -> None:
    ca, file = tmp_path / "ca.pem", tmp_path / "ginnel.yml"
    ca.write_text(service.ca_pem)
    known = f"version: 2\nserver_addr: tunnels.corp.test:4443\nroot_cas: {ca}\n"
    known += f"authtoken: {service.authtoken}\n"
    with ConnectProxy(target(service)) as by_file, ConnectProxy(target(service)) as by_variable:
        file.write_text(f"{known}proxy_url: {by_file.url}\n")
        command = [sys.executable, "-m", "ginnel", "http", str(free_port()), "--config", str(file)]
        command += ["--web-addr", "127.0.0.1:0"]
        for proxy, env in ((by_file, {}), (by_variable, {"GINNEL_PROXY_URL": by_variable.url})):
            process = subprocess.Popen(
                command, env={"PATH": "", "HOME": str(tmp_path), **env}, stdout=subprocess.DEVNULL
            )
            try:
                wait_until(partial(bool, proxy.heads), "the proxy to be asked")
            finally:
                process.kill()
                process.wait()
            assert proxy.heads[0].startswith("CONNECT tunnels.corp.test:4443 ")

        file.write_text(f"{known}proxy_url: socks4://me:swordfish@proxy\n")
        check = [sys.executable, "-m", "ginnel", "config", "check", "--config", str(file)]
        done = subprocess.run(check, capture_output=True, text=True, timeout=30)

    assert done.returncode == 2
    assert "proxy_url" in done.stderr
    assert "swordfish" not in done.stderr
