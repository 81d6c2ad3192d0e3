"""Logs: what the logger `ginnel` and its children get, from whom, and what never is in it."""

from __future__ import annotations

import ctypes
import logging
import os
import re
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

import ginnel
from ginnel import _native
from processes import Command, wait_until
from server import Server, answer

if TYPE_CHECKING:
    from collections.abc import Iterator

STABLE = ("request_id", "op_id", "session", "tunnel", "edge", "status", "dur_ms", "err")
SECRETS = ("planted-query", "planted-header", "planted-body", "planted-metadata", "planted-cookie")


@pytest.fixture
def service() -> Iterator[ginnel.Service]:
    with ginnel.Service(base_domain="tunnels.test") as service:
        yield service


def ours(caplog: pytest.LogCaptureFixture, name: str = "ginnel") -> list[Any]:
    """The records of a logger and of its children."""
    return [it for it in list(caplog.records) if f"{it.name}.".startswith(f"{name}.")]


def says(caplog: pytest.LogCaptureFixture, text: str, name: str = "ginnel") -> Any:
    """Waits for a record with a text, and returns it."""

    def matching() -> list[Any]:
        return [it for it in ours(caplog, name) if text in it.getMessage()]

    wait_until(lambda: bool(matching()), f"{text!r} in the log")
    return matching()[0]


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = os.environ | {"GINNEL_LOG": ""} | environment
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_an_api_operation_is_a_record_with_its_id(
    service: ginnel.Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "ginnel")
    with service.client() as remote, pytest.raises(ginnel.NotFoundError) as refused:
        remote.ip_policies.get("ipp_" + "2" * 27)

    record = says(caplog, "ip_policies", "ginnel.service")
    assert record.op_id == refused.value.operation_id
    assert record.status == 404
    assert record.dur_ms > 0
    assert record.levelno == logging.DEBUG
    assert abs(record.created - time.time()) < 60
    for name in STABLE:
        assert hasattr(record, name)


async def test_a_client_tells_which_operation_it_was(
    service: ginnel.Service, make_client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "ginnel")
    client = make_client(service.api_key, base_url=service.url)
    with pytest.raises(ginnel.NotFoundError) as refused:
        await client.ip_policies.get("ipp_" + "2" * 27)

    record = says(caplog, "GET /ip_policies/{id}: 404 in ")
    assert record.op_id == refused.value.operation_id
    assert record.status == 404
    assert record.dur_ms > 0


def visit(service: ginnel.Service, url: str, path: str = "/", **headers: str) -> int:
    """The status of the answer to a visitor of a host."""
    host = url.partition("://")[2].partition(":")[0]
    request = urllib.request.Request(service.edge_url(host, path), headers=headers)
    try:
        with service.opener().open(request, timeout=30) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code


def test_a_visitors_request_is_told_by_the_gateway_and_the_agent(
    service: ginnel.Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "ginnel")
    with Server([answer(200, {})]) as local, ginnel.Agent(service) as agent, agent.client() as api:
        tunnel = api.tunnels.start(name="web", addr=local.url, proto="http")
        assert visit(service, tunnel.public_url, "/shop?token=planted-query") == 200
        capture = api.requests.list().first()

    at_gateway = says(caplog, "of a visitor has ended", "ginnel.gateway")
    assert (at_gateway.status, at_gateway.method, at_gateway.path) == (200, "GET", "/shop")
    assert at_gateway.request_id.startswith("req_")
    assert at_gateway.phase == "finish"
    at_agent = says(caplog, "a request has ended", "ginnel.agent")
    assert capture is not None
    assert (at_agent.status, at_agent.tunnel) == (200, "web")
    assert at_agent.request_id == capture.id
    assert at_agent.dur_ms > 0


def test_a_local_service_that_is_away_is_told_with_the_cause(
    service: ginnel.Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "ginnel")
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with ginnel.Agent(service) as agent, agent.client() as api:
        tunnel = api.tunnels.start(name="web", addr=f"127.0.0.1:{port}", proto="http")
        assert visit(service, tunnel.public_url) == 502

    record = says(caplog, "cannot connect to the local service", "ginnel.agent")
    assert record.levelno == logging.DEBUG
    assert record.tunnel == "web"
    assert "refused" in record.err.lower()


def test_a_visitor_who_does_not_speak_tls_is_told_with_the_cause(
    service: ginnel.Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "ginnel")
    assert service.https_url is not None
    host, _, port = service.https_url.removeprefix("https://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as visitor:
        visitor.sendall(b"this is no hello of TLS, whatever else it may be\r\n\r\n")
        while visitor.recv(4096):
            pass
        peer = visitor.getsockname()[1]

    record = says(caplog, "TLS handshake of a visitor failed", "ginnel.gateway")
    assert record.levelno == logging.DEBUG
    assert record.peer == f"127.0.0.1:{peer}"
    assert "corrupt" in record.err.lower() or "invalid" in record.err.lower()


def test_a_visitor_who_leaves_is_told_with_the_cause(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "ginnel")
    asked = threading.Event()
    with (
        ginnel.Service() as service,
        socket.create_server(("127.0.0.1", 0)) as local,
        ginnel.Agent(service) as agent,
    ):

        def stall() -> None:
            connection, _ = local.accept()
            with connection:
                connection.recv(65_536)
                asked.set()
                connection.recv(65_536)

        serving = threading.Thread(target=stall)
        serving.start()
        with agent.client() as api:
            tunnel = api.tunnels.start(name="web", addr=local.getsockname()[1], proto="http")
        host, _, port = tunnel.public_url.removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as visitor:
            visitor.sendall(b"GET / HTTP/1.1\r\nHost: app.test\r\n\r\n")
            assert asked.wait(30)
            visitor.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        record = says(caplog, "a request broke off", "ginnel.agent")
        serving.join(30)

    assert record.levelno == logging.DEBUG
    assert record.tunnel == "web"
    assert record.err


def test_an_agent_that_is_refused_or_cut_off_is_told_with_the_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "ginnel")
    with ginnel.Service() as service:
        with pytest.raises(ginnel.AgentError):
            ginnel.Agent(service, authtoken="planted-" + "0" * 40)
        with ginnel.Agent(service) as agent:
            service.stop()
            wait_until(lambda: agent.state != "online", "the agent notices")
            lost = says(caplog, "not connected to the service", "ginnel.agent")

    assert lost.err
    refused = says(caplog, "an agent was refused", "ginnel.service")
    assert "authtoken" in refused.err
    told = says(caplog, "the service refuses the agent", "ginnel.agent")
    assert told.levelno == logging.WARNING
    online = says(caplog, "an agent has logged in", "ginnel.service")
    ended = says(caplog, "an agent's session has ended", "ginnel.service")
    assert online.session == ended.session is not None
    assert "planted-" not in caplog.text


def test_a_clean_session_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1, "ginnel")
    with (
        ginnel.Service(base_domain="tunnels.test") as service,
        Server([answer(200, {})]) as local,
        ginnel.Agent(service) as agent,
        agent.client() as api,
        service.client() as remote,
    ):
        tunnel = api.tunnels.start(name="web", addr=local.url, proto="http")
        assert visit(service, tunnel.public_url) == 200
        assert len(list(remote.tunnels.list())) == 1

    assert {it.name for it in ours(caplog)} >= {"ginnel.service", "ginnel.agent", "ginnel.gateway"}
    loud = [it.getMessage() for it in ours(caplog) if it.levelno >= logging.WARNING]
    assert loud == []


def test_no_record_holds_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    query, header, body, metadata, cookie = SECRETS
    with (
        ginnel.Service(base_domain="tunnels.test") as service,
        Server([answer(200, {"x": body})] * 2) as local,
    ):
        with ginnel.Agent(service, metadata=metadata) as agent, agent.client() as api:
            tunnel = api.tunnels.start(name="web", addr=local.url, proto="http")
            url, held = tunnel.public_url, {"authorization": f"Bearer {header}", "cookie": cookie}
            assert visit(service, url, f"/x?token={query}", **held) == 200
            with service.client() as remote:
                remote.api_keys.create(description=body)
            wrong = ginnel.RemoteClient("ak_wrong_" + header, base_url=service.url)
            with wrong, pytest.raises(ginnel.AuthenticationError):
                wrong.api_keys.list().first()
        known = [service.api_key, service.authtoken, *SECRETS]

    text = "\n".join(repr(it.__dict__) for it in ours(caplog))
    assert "of a visitor has ended" in text
    for secret in known:
        assert secret is not None
        assert secret not in text
    assert {it.name.partition(".")[0] for it in caplog.records} <= {"ginnel", "asyncio"}


def test_what_other_crates_tell_is_not_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    names = set(_native.log_targets())
    with ginnel.Service():
        pass
    assert {it.name for it in ours(caplog)} <= {"ginnel"} | {f"ginnel.{name}" for name in names}


def test_one_thread_hands_records_over_while_somebody_listens() -> None:
    code = """
        import ginnel, logging, threading
        names = lambda: [it.name for it in threading.enumerate() if it.name == "ginnel-log"]
        with ginnel.Service() as service:
            for _ in range(10):
                service.client().api_keys.list().first()
            assert names() == [], "nobody has asked for records"
            logging.getLogger("ginnel").setLevel("DEBUG")
            assert names() == ["ginnel-log"], "a level is asked for while the service runs"
            with ginnel.Service():
                assert names() == ["ginnel-log"]
            assert names() == ["ginnel-log"], "one service is left"
        assert names() == []
        with ginnel.Service():
            assert names() == ["ginnel-log"]
        assert names() == []
    """
    assert run(code).stderr == ""


def test_levels_that_change_count_from_then_on() -> None:
    code = """
        import ginnel, logging, time
        logging.basicConfig(format="%(name)s %(levelname)s %(message)s")
        arrived = []
        logging.getLogger("ginnel.service").addFilter(lambda record: arrived.append(record) or True)
        with ginnel.Service() as service, service.client() as remote:
            mark = logging.getLogger("mark").error
            for level in ("WARNING", "DEBUG", "ERROR"):
                mark("%s", level)
                logging.getLogger("ginnel.service").setLevel(level)
                remote.api_keys.list().first()
                remote.api_keys.list().first()
                # Records come when they come; those of one level are in before the next is set.
                end = time.monotonic() + 30
                while level == "DEBUG" and time.monotonic() < end:
                    if sum("/api_keys" in record.getMessage() for record in arrived) == 2:
                        break
                    time.sleep(0.005)
        with ginnel.Service() as service, service.client() as remote:
            logging.getLogger("ginnel.service").setLevel("DEBUG")
            logging.disable(logging.INFO)
            remote.api_keys.list().first()
    """
    lines = run(code).stderr.splitlines()
    told = [
        line for line in lines if line.startswith("ginnel.service DEBUG GET /api_keys op_id=op_")
    ]
    assert len(told) == 2, lines


def test_a_program_that_ends_without_stopping_tells_the_rest() -> None:
    code = """
        import ginnel, logging
        logging.basicConfig(level="DEBUG")
        service = ginnel.Service()
        service.client().api_keys.list().first()
    """
    assert "DEBUG:ginnel.service:GET /api_keys peer=" in run(code).stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_tells_only_its_own_records() -> None:
    code = """
        import ginnel, logging, os, sys, threading, warnings
        warnings.simplefilter("ignore")
        logging.basicConfig(level="DEBUG", format="%(process)d %(name)s %(message)s")
        service = ginnel.Service()
        remote = service.client()
        remote.api_keys.list().first()
        child = os.fork()
        if child == 0:
            assert [it.name for it in threading.enumerate()] == ["MainThread"]
            remote.api_keys.list().first()
            with ginnel.Service() as own, own.client() as client:
                client.ip_policies.list().first()
            logging.shutdown()
            sys.stderr.flush()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        remote.api_keys.list().first()
        service.stop()
        print(os.getpid(), child)
    """
    done = run(code)
    parent, child = done.stdout.split()
    lines = [line for line in done.stderr.splitlines() if "op_id=" in line]
    served = {
        process: [line for line in lines if line.startswith(process)] for process in (parent, child)
    }
    assert [line.split()[3] for line in served[parent]] == ["/api_keys"] * 3
    assert [line.split()[3] for line in served[child]] == ["/ip_policies"]


def test_records_that_find_no_place_are_counted() -> None:
    code = """
        import ginnel, logging, sys, threading
        from ginnel import _native

        class Slow(logging.Handler):
            def emit(self, record):
                if not held.is_set():
                    held.set()
                    go_on.wait(60)
                told.append(record)

        held, go_on, told = threading.Event(), threading.Event(), []
        logging.getLogger("ginnel").addHandler(Slow())
        logging.getLogger("ginnel.service").setLevel("DEBUG")
        logging.getLogger("ginnel").propagate = False
        with ginnel.Service() as service, service.client() as remote:
            remote.api_keys.list().first()
            assert held.wait(60), "the thread hands the first record over"
            for _ in range(8_300):
                remote.request("GET", "/api_keys", query={"limit": 1})
            go_on.set()
        lost = [it for it in told if it.name == "ginnel.logging"]
        assert len(lost) == 1 and lost[0].levelname == "WARNING", lost
        served = [it for it in told if it.name == "ginnel.service" and it.op_id]
        assert lost[0].dropped + len(served) == 8_301, (lost[0].dropped, len(served))
    """
    run(code)


def test_traffic_goes_on_while_the_interpreter_is_held(
    service: ginnel.Service, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests of another process are answered and recorded while nobody can hand a record over."""
    caplog.set_level(logging.DEBUG, "ginnel")
    code = """
        import sys, time, ginnel
        remote = ginnel.RemoteClient(sys.argv[2], base_url=sys.argv[1])
        remote.api_keys.list().first()
        print("ready", flush=True)
        sys.stdin.readline()
        answered = []
        for _ in range(50):
            remote.api_keys.list().first()
            answered.append(time.monotonic())
        print(*answered, flush=True)
    """
    arguments = [sys.executable, "-c", textwrap.dedent(code), service.url, str(service.api_key)]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        hold = ctypes.PyDLL(None).usleep
        # This call does not let go of the interpreter.
        go = os.dup(other.stdin.fileno())
        os.write(go, b"go\n")
        os.close(go)
        hold(3_000_000)
        released = time.monotonic()
        answered = [float(at) for at in other.stdout.readline().split()]

    assert len(answered) == 50
    assert answered[4] < released, "the service waited for the interpreter"
    wait_until(
        lambda: (
            sum("GET /api_keys" in it.getMessage() for it in ours(caplog, "ginnel.service")) >= 51
        ),
        "all records",
    )
    assert not [it for it in ours(caplog) if it.levelno >= logging.WARNING]


@pytest.mark.parametrize("level", ["", "off", "warn", "warning", "info", "debug"])
def test_the_command_is_quiet_unless_asked(level: str) -> None:
    with Command("serve", "--port", "0", GINNEL_LOG=level) as command:
        ready = command.line()
        with ginnel.RemoteClient(ready["api_key"], base_url=ready["url"]) as remote:
            remote.api_keys.list().first()
        command.process.terminate()
        code, complaints = command.ended()

    assert code == 0
    if level != "debug":
        assert complaints == ""
        return
    line = complaints.splitlines()[0]
    event = r"DEBUG ginnel.service GET /api_keys peer=\S+ op_id=op_\w+ status=200 "
    assert re.match(rf"[0-9-]+T[0-9:.]+Z {event}", line)


def test_a_field_named_as_an_attribute_of_records_has_an_underscore(
    service: ginnel.Service, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, "ginnel")
    remote = service.client()
    body = remote.backends.http_response.create(body="in").id
    edge = remote.edges.https.create(hostports=["filtered.example.test:80"])
    remote.edges.https.routes.create(
        edge.id,
        match_type="path_prefix",
        match="/",
        backend={"backend_id": body},
        user_agent_filter={"deny": [".*"]},
    )
    assert service.http_url
    headers = {"Host": "filtered.example.test", "User-Agent": "x"}
    request = urllib.request.Request(service.http_url, headers=headers)

    events = service.events()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=20)
    refused.value.close()
    event = events.get(timeout=20)
    assert event
    assert event.module == "user_agent_filter"
    service.stop()

    named = [getattr(record, "module_", None) for record in ours(caplog)]
    assert "user_agent_filter" in named
    assert "Traceback" not in capfd.readouterr().err
