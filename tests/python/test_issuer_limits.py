"""What issuers are asked for: not too much for one, and nothing out of the reach of agents."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest

import ginnel
from issuer import CLIENT_ID, Call, Issuer
from processes import PATIENCE, wait_until
from recorder import Recorder
from test_openid_connect import Endpoint, code
from visitor import Visitor

FLOODED, OTHER = "flooded.example.test", "other.example.test"
# {"alg":"ES256","kid":"k"} . {"iss":"https://issuer.test"} . nothing of worth
TOKEN = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImsifQ.eyJpc3MiOiJodHRwczovL2lzc3Vlci50ZXN0In0.AAAA"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


@pytest.fixture
def upstream() -> Iterator[Recorder]:
    with Recorder() as upstream:
        yield upstream


def test_whoever_logs_in_all_the_time_holds_up_nobody_else(
    service: ginnel.Service, upstream: Recorder, issuer: Issuer
) -> None:
    endpoint, released = Endpoint(service, upstream, issuer), threading.Event()
    member = endpoint.serve(host=FLOODED, userinfo_refresh_interval="1s")
    member.log_in()
    elsewhere = endpoint.serve(host=OTHER)

    def token(call: Call) -> None:
        if call.form.get("redirect_uri", "").startswith(f"https://{FLOODED}/"):
            released.wait(PATIENCE)
        call.exchange()

    issuer.answers["/token"] = token
    calls = issuer.calls["/token"]
    with ThreadPoolExecutor(8) as pool:
        flood = [Visitor(service, FLOODED) for _ in range(8)]
        logins = [pool.submit(visitor.log_in) for visitor in flood]
        wait_until(lambda: issuer.calls["/token"] >= calls + 8, "eight logins are on their way")
        time.sleep(1.1)

        assert member.go().status == 200, "who has a session is asked for again"
        assert elsewhere.log_in().status == 302
        assert elsewhere.go().status == 200
        assert not any(login.done() for login in logins), "they were waited for"
        released.set()
        assert {login.result().status for login in logins} == {302}
    endpoint.remote.close()


def test_calls_of_logins_are_bounded_whatever_hosts_visitors_name(
    service: ginnel.Service, upstream: Recorder, issuer: Issuer
) -> None:
    endpoint = Endpoint(service, upstream, issuer)
    released, lock = threading.Event(), threading.Lock()
    running = most = 0

    def token(call: Call) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        released.wait(20)
        with lock:
            running -= 1
        call.say(400, {"error": "invalid_grant"})

    endpoint.serve(host="*.wild.example.test")
    issuer.answers["/token"] = token
    names = [f"n{at}.wild.example.test" for at in range(12)]
    with ThreadPoolExecutor(len(names)) as pool:
        logins = [pool.submit(Visitor(service, name).log_in) for name in names]
        wait_until(lambda: running >= 8, "eight logins are on their way")
        time.sleep(0.5)
        released.set()
        statuses = {login.result().status for login in logins}
    endpoint.remote.close()

    assert most == 8
    assert statuses == {403}


def login_at(port: int) -> dict[str, Any]:
    config = {"issuer_url": f"https://localhost:{port}", "client_id": CLIENT_ID}
    return {"type": "openid-connect", "config": config}


def provider_at(port: int) -> dict[str, Any]:
    names = ("authorization_url", "token_url", "userinfo_url")
    urls = dict.fromkeys(names, f"https://localhost:{port}")
    return {"type": "oauth", "config": {"provider": "mine", "client_id": CLIENT_ID, **urls}}


def keys_at(port: int) -> dict[str, Any]:
    header = {"type": "jwt", "method": "header", "name": "Authorization", "prefix": "Bearer "}
    sources = {"additional_jkus": [f"https://[::ffff:127.0.0.1]:{port}/keys"]}
    config = {
        "issuer": {"allow_list": [{"value": "https://issuer.test"}]},
        "http": {"tokens": [header]},
        "jws": {"allowed_algorithms": ["ES256"], "keys": {"sources": sources}},
    }
    return {"type": "jwt-validation", "config": config}


@pytest.mark.parametrize("is_open", [False, True], ids=["public alone", "private too"])
@pytest.mark.parametrize("action", [login_at, provider_at, keys_at])
def test_the_policy_of_an_agent_reaches_public_addresses_alone(
    action: Any, is_open: bool, upstream: Recorder
) -> None:
    with (
        ginnel.Service(
            base_domain="tunnels.test", settings={"private_issuers": is_open}
        ) as service,
        ginnel.Agent(service) as agent,
        agent.client() as local,
        socket.create_server(("127.0.0.1", 0)) as listener,
        ThreadPoolExecutor() as pool,
    ):
        rules = {"on_http_request": [{"actions": [action(listener.getsockname()[1])]}]}
        tunnel = local.tunnels.start(addr=upstream.address, proto="http", traffic_policy=rules)
        visitor = Visitor(service, urlsplit(tunnel.public_url).netloc)

        def visit() -> int:
            if action is provider_at:
                back = urlsplit(visitor.go().location).query
                state = next(part for part in back.split("&") if part.startswith("state="))
                return visitor.go(f"/ngrok/callback?code=x&{state}").status
            return visitor.go(Authorization=f"Bearer {TOKEN}").status

        visiting = pool.submit(visit)
        listener.settimeout(10 if is_open else 0.5)
        if is_open:
            connection, _ = listener.accept()
            connection.close()
        else:
            with pytest.raises(TimeoutError):
                listener.accept()

        assert visiting.result() in ({401, 502} if action is keys_at else {502})
    assert upstream.heads == []


def test_an_issuer_that_is_out_of_reach_is_called_so(upstream: Recorder) -> None:
    with (
        ginnel.Service(base_domain="tunnels.test") as service,
        ginnel.Agent(service) as agent,
        agent.client() as local,
    ):

        def start(action: dict[str, Any]) -> str:
            rules = {"on_http_request": [{"actions": [action]}]}
            tunnel = local.tunnels.start(addr=upstream.address, proto="http", traffic_policy=rules)
            return str(tunnel.public_url)

        for host in ("127.0.0.1", "10.1.2.3", "[::1]", "[::ffff:10.1.2.3]"):
            config = {"issuer_url": f"https://{host}:4433", "client_id": CLIENT_ID}
            with pytest.raises(ginnel.APIStatusError, match="is not a public address"):
                start({"type": "openid-connect", "config": config})
        urls = provider_at(1)["config"] | {"token_url": "https://192.168.0.1/token"}
        with pytest.raises(ginnel.APIStatusError, match=r"192\.168\.0\.1 is not a public address"):
            start({"type": "oauth", "config": urls})

        refused = Visitor(service, urlsplit(start(login_at(1))).netloc).go()
        assert (refused.status, code(refused.headers)) == (502, "3446")
        assert "has no public address" in refused.body
