"""Traffic policies as one document, on edges, and what agents hear of those that are wrong."""

from __future__ import annotations

import json
import socket
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

import ginnel
from recorder import Recorder, get
from test_official_agent import Official, language, local, official

__all__ = ["language", "local", "official"]

HOST = "app.example.test"


def deny(status: int) -> dict[str, Any]:
    return {"actions": [{"type": "deny", "config": {"status_code": status}}]}


def route(remote: ginnel.RemoteClient, **modules: Any) -> tuple[str, str]:
    edge = remote.edges.https.create(hostports=[f"{HOST}:80"])
    assert edge.id
    made = remote.edges.https.routes.create(edge.id, match_type="path_prefix", match="/", **modules)
    return edge.id, made.id


def status(service: ginnel.Service) -> int:
    try:
        with service.opener().open(f"http://{HOST}/") as response:
            code: int = response.status
    except HTTPError as error:
        with error:
            code = error.code
    return code


YAML = "on_http_request:\n  - actions:\n      - type: deny\n        config: {status_code: 410}\n"


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(YAML, id="yaml"),
        pytest.param(json.dumps({"on_http_request": [deny(410)]}), id="json"),
        pytest.param(json.dumps({"Inbound": [deny(410)]}), id="old phases"),
    ],
)
def test_a_document_acts_on_a_route(service: ginnel.Service, value: str) -> None:
    with service.client() as remote:
        documents = remote.edges.https.routes.traffic_policy
        ids = route(remote, traffic_policy={"value": value})
        assert status(service) == 410

        shown = documents.get(*ids)
        assert (shown.enabled, shown.value) == (True, value)
        assert remote.edges.https.routes.get(*ids).traffic_policy == shown

        documents.replace(*ids, value=json.dumps({"on_http_request": [deny(418)]}))
        assert status(service) == 418
        documents.replace(*ids, value=value, enabled=False)
        assert status(service) not in (410, 418)
        documents.delete(*ids)
        with pytest.raises(ginnel.NotFoundError):
            documents.get(*ids)
        remote.edges.https.routes.update(*ids, traffic_policy={"value": value})
        assert status(service) == 410


def test_a_policy_is_there_in_one_form_alone(service: ginnel.Service) -> None:
    with service.client() as remote:
        ids = route(remote, policy={"inbound": [deny(410)]})
        with pytest.raises(ginnel.BadRequestError, match="delete one"):
            remote.edges.https.routes.traffic_policy.replace(*ids, value=YAML)
        assert status(service) == 410

        remote.edges.https.routes.policy.delete(*ids)
        remote.edges.https.routes.traffic_policy.replace(*ids, value=YAML)
        with pytest.raises(ginnel.BadRequestError, match="delete one"):
            remote.edges.https.routes.policy.replace(*ids, inbound=[deny(411)])
        with pytest.raises(ginnel.BadRequestError, match="delete one"):
            remote.edges.https.routes.create(
                ids[0],
                match_type="exact_path",
                match="/x",
                policy={"inbound": []},
                traffic_policy={"value": YAML},
            )


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("on_http_request: 1", 2236),
        ("{", 2236),
        ("", 2236),
        (json.dumps({"on_http_request": [{"actions": [{"type": "dance"}]}]}), 2201),
        (json.dumps({"on_tcp_connect": [deny(403)]}), 2248),
    ],
)
def test_a_wrong_document_is_refused(service: ginnel.Service, value: str, code: int) -> None:
    with service.client() as remote:
        ids = route(remote)
        with pytest.raises(ginnel.BadRequestError) as caught:
            remote.edges.https.routes.traffic_policy.replace(*ids, value=value)
    assert str(caught.value.error_code).endswith(f"_{code}")


def test_a_document_acts_on_a_tcp_edge(service: ginnel.Service) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with Recorder() as upstream, service.client() as remote:
        backend = remote.backends.static.create(
            address=f"127.0.0.1:{upstream.port}", tls={"enabled": False}
        )
        edge = remote.edges.tcp.create(
            hostports=[f"127.0.0.1:{port}"], backend={"backend_id": backend.id}
        )
        assert get(f"127.0.0.1:{port}", HOST, "/")[0] == 200

        value = json.dumps({"inbound": [{"actions": [{"type": "deny"}]}]})
        remote.edges.tcp.traffic_policy.replace(edge.id, value=value)

        with socket.create_connection(("127.0.0.1", port), timeout=20) as visitor:
            assert visitor.recv(1) == b""


def test_agents_hear_of_wrong_policies_in_words_that_libraries_know(
    official: Official, local: int
) -> None:
    assert official.connect() == "connected"
    unknown = json.dumps({"inbound": [], "outbound": [{"actions": [{"type": "not-real"}]}]})

    action = official.do(http=local, traffic_policy=unknown)["error"]
    shape = official.do(http=local, traffic_policy='{"inbound": "not valid"}')["error"]
    domain = official.do(http=local, domain="not a domain.test")["error"]

    assert "Invalid policy action type 'not-real'." in " ".join(action)
    assert "ERR_NGROK_2201" in action
    assert "provided is invalid" in " ".join(shape)
    assert "ERR_NGROK_9026" in shape
    assert "Invalid character ' ' in domain name" in " ".join(domain)
    assert "ERR_NGROK_326" in domain


def test_a_policy_with_names_of_typed_libraries_acts(official: Official, local: int) -> None:
    assert official.connect() == "connected"
    action = {"Type": "custom-response", "Config": {"StatusCode": 203, "Content": "typed"}}
    rule = {"Name": "gets", "Expressions": ["req.Method == 'GET'"], "Actions": [action]}

    url = official.do(http=local, traffic_policy=json.dumps({"Inbound": [rule]}))

    with urlopen(url, timeout=10) as response:
        assert (response.status, response.read()) == (203, b"typed")
