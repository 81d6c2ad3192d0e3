"""What rules see of a visitor's connection and of the endpoint that it has come to."""

from __future__ import annotations

import json
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit

import pytest

import ginnel
from recorder import Recorder, get

HOST = "shop.example.test"


def document(body: str, *actions: dict[str, Any]) -> dict[str, Any]:
    shown = {"type": "custom-response", "config": {"status_code": 200, "content": body}}
    return {"on_http_request": [{"actions": [*actions, shown]}]}


def visit(service: ginnel.Service, path: str = "/") -> tuple[int, str]:
    assert service.http_url is not None
    status, _, body = get(urlsplit(service.http_url).netloc, HOST, path)
    return status, body.decode()


@pytest.mark.parametrize(
    ("version", "number", "suite"),
    [
        (ssl.TLSVersion.TLSv1_2, "1.2", "TLS_ECDHE_"),
        (ssl.TLSVersion.TLSv1_3, "1.3", "TLS_AES_"),
    ],
)
def test_tls_has_the_number_and_the_registered_name(
    service: ginnel.Service, version: ssl.TLSVersion, number: str, suite: str
) -> None:
    old = {"type": "deny", "config": {"status_code": 401}}
    rules = document("${conn.tls.version} ${conn.tls.cipher_suite}")["on_http_request"]
    rules.insert(0, {"expressions": ["conn.tls.version < '1.3'"], "actions": [old]})
    shown = json.dumps({"on_http_request": rules[1:]})
    asked = json.dumps({"on_http_request": rules})
    context = ssl.create_default_context(cadata=service.ca_pem)
    context.minimum_version = context.maximum_version = version

    def ask() -> bytes:
        assert service.https_url is not None
        address = urlsplit(service.https_url)
        with (
            socket.create_connection((address.hostname, address.port)) as plain,
            context.wrap_socket(plain, server_hostname=HOST) as connection,
        ):
            connection.sendall(f"GET / HTTP/1.0\r\nHost: {HOST}\r\n\r\n".encode())
            return b"".join(iter(lambda: connection.recv(4096), b""))

    with service.client() as remote:
        made = remote.endpoints.create(url=f"https://{HOST}", traffic_policy=shown)
        assert f"\r\n\r\n{number} {suite}".encode() in ask()
        remote.endpoints.update(made.id, traffic_policy=asked)
        assert (b" 401 " in ask()) == (number == "1.2")


def test_the_bytes_of_a_connection_are_counted(service: ginnel.Service) -> None:
    shown = document("${conn.bytes_in} ${conn.bytes_out}")
    with service.client() as remote:
        remote.endpoints.create(url=f"http://{HOST}", traffic_policy=json.dumps(shown))
        assert service.http_url is not None
        address = urlsplit(service.http_url)
        request = f"GET / HTTP/1.1\r\nHost: {HOST}\r\nX-A: {'a' * 500}\r\n\r\n".encode()
        with socket.create_connection((address.hostname, address.port)) as connection:
            counts = []
            for _ in range(2):
                connection.sendall(request)
                response = connection.recv(65536)
                counts.append([int(it) for it in response.rpartition(b"\r\n\r\n")[2].split()])

    assert counts[0] == [len(request), 0]
    assert counts[1][0] == 2 * len(request)
    assert counts[1][1] > 50


def test_an_agents_endpoint_has_its_identifier(service: ginnel.Service) -> None:
    shown = document("${endpoint.id} ${conn.server_region}")
    with (
        Recorder() as upstream,
        ginnel.Agent(service) as agent,
        agent.client() as local,
        service.client() as remote,
    ):
        local.endpoints.start(
            name="shop",
            url=f"http://{HOST}",
            upstream={"url": upstream.address},
            traffic_policy=shown,
        )
        [listed] = remote.endpoints.list()

        assert visit(service) == (200, f"{listed.id} local")


@pytest.mark.parametrize(
    ("action", "variable"),
    [
        ({"type": "restrict-ips", "config": {"allow": ["127.0.0.0/8"]}}, "restrict_ips"),
        (
            {
                "type": "rate-limit",
                "config": {
                    "name": "all",
                    "algorithm": "sliding_window",
                    "capacity": 10,
                    "rate": "60s",
                    "bucket_key": ["conn.client_ip"],
                },
            },
            "rate_limit",
        ),
    ],
)
def test_an_action_that_did_not_fail_has_an_empty_error(
    service: ginnel.Service, action: dict[str, Any], variable: str
) -> None:
    error = f"actions.ngrok.{variable}.error"
    shown = document(f"[${{{error}.code}}${{{error}.message}}] ${{{error} == null}}", action)
    with service.client() as remote:
        remote.endpoints.create(url=f"http://{HOST}", traffic_policy=json.dumps(shown))

        assert visit(service) == (200, "[] true")
