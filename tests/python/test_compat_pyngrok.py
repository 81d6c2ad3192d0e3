"""pyngrok, unmodified, with the launcher of `ginnel compat ngrok` where it expects its binary."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.request import urlopen

import pytest

import ginnel
from compat import environment, write_launcher
from processes import Relay, Upstream, wait_until

pytest.importorskip("pyngrok")

from pyngrok import agent, installer, ngrok, process
from pyngrok.conf import PyngrokConfig
from pyngrok.exception import PyngrokNgrokError, PyngrokNgrokHTTPError
from pyngrok.log import NgrokLog

Configure = Callable[..., PyngrokConfig]


@pytest.fixture(scope="module")
def service() -> Iterator[ginnel.Service]:
    with ginnel.Service() as service:
        yield service


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_launcher(tmp_path_factory.mktemp("launcher"))


def close_output(running: process.NgrokProcess) -> None:
    """Closes the output of a process that has ended, which pyngrok leaves open."""
    wait_until(lambda: running._monitor_thread is None, "the monitor has ended")
    assert running.proc.stdout is not None
    running.proc.stdout.close()


@pytest.fixture
def configure(
    service: ginnel.Service, launcher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Configure]:
    """Makes a configuration of pyngrok; what it started is killed at the end."""
    for name, value in environment(service, tmp_path).items():
        monkeypatch.setenv(name, value)

    def make(version: str = "3", data: dict[str, Any] | None = None, **more: Any) -> PyngrokConfig:
        path = tmp_path / f"config_{version}.yml"
        web: dict[str, Any] = {"web_addr": "127.0.0.1:0"}
        settings = {"agent": web} if version == "3" else web
        installer.install_default_config(str(path), settings | (data or {}), config_version=version)
        return PyngrokConfig(
            ngrok_path=str(launcher),
            config_path=str(path),
            config_version=version,
            monitor_thread=more.pop("monitor_thread", True),
            **more,
        )

    with mock.patch.object(installer, "install_ngrok", side_effect=AssertionError("a download")):
        yield make
        for running in list(process._current_processes.values()):
            process.kill_process(running.pyngrok_config.ngrok_path)
            close_output(running)
        ngrok._current_tunnels.clear()


@pytest.fixture
def local() -> Iterator[Upstream]:
    with Upstream() as local:
        yield local


@pytest.mark.parametrize("version", ["2", "3"])
def test_tunnels_are_connected_listed_and_disconnected(
    configure: Configure, local: Upstream, version: str
) -> None:
    config = configure(version)

    tunnel = ngrok.connect(str(local.port), name="web", pyngrok_config=config)
    assert tunnel.public_url is not None
    with urlopen(f"{tunnel.public_url}/hello", timeout=10) as response:
        assert response.read() == b"/hello"
    listed = ngrok.get_tunnels(config)
    tunnel.refresh_metrics()
    ngrok.disconnect(tunnel.public_url, config)

    addr = f"http://localhost:{local.port}"
    assert (tunnel.name, tunnel.config["addr"]) == ("web", addr)
    assert tunnel.upstream["url"] == addr
    assert tunnel.id
    assert [found.public_url for found in listed] == [tunnel.public_url]
    assert tunnel.metrics["http"]["count"] == 1
    assert ngrok.get_tunnels(config) == []


@pytest.mark.parametrize("version", ["2", "3"])
def test_bytes_and_folders_are_connected(
    configure: Configure, tmp_path: Path, version: str
) -> None:
    config = configure(version)

    tcp = ngrok.connect("22", "tcp", pyngrok_config=config)
    folder = ngrok.connect(f"file://{tmp_path}", pyngrok_config=config)

    assert (tcp.proto, tcp.config["addr"]) == ("tcp", "localhost:22")
    assert folder.config["addr"] == f"file://{tmp_path}"


def test_definitions_of_a_file_are_connected(configure: Configure, local: Upstream) -> None:
    upstream = {"url": f"http://localhost:{local.port}"}
    config = configure("3", {"endpoints": [{"name": "web", "upstream": upstream}]})

    [tunnel] = ngrok.connect_all(config)

    assert (tunnel.name, tunnel.upstream["url"]) == ("web-api", upstream["url"])


def test_a_tunnel_of_a_file_of_version_2_is_connected(
    configure: Configure, local: Upstream
) -> None:
    config = configure("2", {"tunnels": {"pyngrok-default": {"proto": "http", "addr": local.port}}})

    tunnel = ngrok.connect(pyngrok_config=config, schemes=["http"])

    assert tunnel.name == "pyngrok-default-api"
    assert tunnel.proto == "http"


def test_an_agent_comes_back_to_a_service_that_was_away(
    configure: Configure, local: Upstream, service: ginnel.Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str | None] = []
    with Relay(str(service.agent_addr)) as relay:
        monkeypatch.setenv("GINNEL_SERVER_ADDR", relay.address)
        config = configure("3", log_event_callback=lambda log: messages.append(log.msg))
        tunnel = ngrok.connect(str(local.port), pyngrok_config=config)

        relay.cut()
        wait_until(lambda: "session closed, starting reconnect loop" in messages, "lost")
        relay.open()
        wait_until(lambda: messages.count("client session established") == 2, "back")

        assert [found.public_url for found in ngrok.get_tunnels(config)] == [tunnel.public_url]


def test_lines_reach_the_monitor_and_the_callback(configure: Configure, local: Upstream) -> None:
    lines: list[NgrokLog] = []
    joined = threading.Event()

    def take(line: NgrokLog) -> None:
        lines.append(line)
        if line.msg == "join connections":
            joined.set()

    config = configure("3", log_event_callback=take, max_logs=4)
    tunnel = ngrok.connect(str(local.port), pyngrok_config=config)
    running = ngrok.get_ngrok_process(config)
    urlopen(str(tunnel.public_url), timeout=10).read()

    assert joined.wait(10)
    assert running.startup_error is None
    assert len(running.logs) == 4
    assert len(lines) > 4
    assert all(line.t and line.msg and line.lvl == "INFO" for line in lines)


def test_a_monitor_that_is_stopped_ends_with_the_next_line(
    configure: Configure, local: Upstream
) -> None:
    config = configure()
    tunnel = ngrok.connect(str(local.port), pyngrok_config=config)
    running = ngrok.get_ngrok_process(config)
    assert running._monitor_thread is not None

    running.stop_monitor_thread()
    urlopen(str(tunnel.public_url), timeout=10).read()

    wait_until(lambda: running._monitor_thread is None, "the monitor has ended")


def test_a_killed_process_is_started_again(configure: Configure) -> None:
    config = configure()
    first = ngrok.get_ngrok_process(config)

    ngrok.kill(config)
    close_output(first)
    second = ngrok.get_ngrok_process(config)

    assert first.proc.poll() is not None
    assert second.proc.poll() is None
    assert process.is_process_running(config.ngrok_path)


def test_a_terminated_process_ends_well_and_soon(configure: Configure) -> None:
    running = ngrok.get_ngrok_process(configure())

    began = time.monotonic()
    process._terminate_process(running.proc)

    assert running.proc.wait(30) == 0
    # Not by the grace, which is for visitors.
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("version", ["2", "3"])
def test_an_authtoken_and_a_key_are_saved_and_used(
    configure: Configure,
    service: ginnel.Service,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
) -> None:
    config = configure(version)
    monkeypatch.delenv("NGROK_AUTHTOKEN")
    assert service.authtoken is not None
    assert service.api_key is not None

    ngrok.set_auth_token(service.authtoken, config)
    ngrok.set_api_key(service.api_key, config)

    keys = ngrok.api("api-keys", "list", pyngrok_config=config)
    running = ngrok.get_ngrok_process(config)
    assert running.proc.poll() is None
    assert keys.data is not None
    assert keys.data["keys"]


def test_a_wrong_authtoken_is_the_error_of_the_start(configure: Configure) -> None:
    config = configure(auth_token="nobodys")

    with pytest.raises(PyngrokNgrokError, match="errored on start") as raised:
        ngrok.connect(pyngrok_config=config)

    assert "authtoken" in str(raised.value.ngrok_error)


def test_the_version_the_status_and_requests_are_asked_for(
    configure: Configure, local: Upstream
) -> None:
    config = configure()

    version, _ = ngrok.get_version(config)
    updated = ngrok.update(config)
    tunnel = ngrok.connect(str(local.port), name="web", pyngrok_config=config)
    urlopen(f"{tunnel.public_url}/hello", timeout=10).read()
    wait_until(lambda: agent.get_requests("web", config), "a request is captured")
    [request] = agent.get_requests("web", config)
    agent.replay_request(str(request.id), pyngrok_config=config)
    status = agent.get_agent_status(config)

    assert version.startswith("3.")
    assert "nothing to update" in updated
    assert status.status == "online"
    assert agent.get_request(str(request.id), config).tunnel_name == "web"
    assert len(agent.get_requests(None, config)) == 2


def test_what_the_agent_refuses_is_the_error_of_the_request(configure: Configure) -> None:
    config = configure()
    running = ngrok.get_ngrok_process(config)

    with pytest.raises(PyngrokNgrokHTTPError, match="invalid tunnel configuration") as raised:
        ngrok.api_request(
            f"{running.api_url}/api/endpoints",
            "POST",
            data={"upstream": {"url": "80"}, "url": "x://"},
        )

    assert raised.value.status_code == 400
