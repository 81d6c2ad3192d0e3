"""What the generated clients are asked to create, change and replace, resource by resource."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import ginnel

sys.path.append(str(Path(__file__).parents[1] / "python"))

from issuer import CLIENT_ID, CLIENT_SECRET, Issuer
from visitor import Visitor

Fields = dict[str, Any]
PAGE = "served by a backend"
CREATED, UPDATED = "ip_policy_created.v0", "ip_policy_updated.v0"
"""Types of events."""
LOGINS = ("application_sessions", "application_users")
"""What logins of visitors make."""


class Rows:
    """Makes rows that a call needs, with names that no other row has."""

    def __init__(self, client: Any, datatypes: Any, service: ginnel.Service) -> None:
        self.client = client
        self.authority = trustme.CA()
        self._datatypes = datatypes
        self._service = service
        self._numbers = itertools.count(1)

    def name(self) -> str:
        return f"row-{next(self._numbers)}"

    def host(self) -> str:
        return f"{self.name()}.example.test"

    def argument(self, kind: str, **fields: Any) -> Any:
        """An argument of a class of the client's, as its callers make them."""
        made = getattr(self._datatypes, kind)(self.client, {})
        # Its constructor would wrap what is nested, which the client then cannot encode.
        made._props = fields
        return made

    def fields(self, path: str) -> Fields:
        return RESOURCES[path].create(self)

    def create(self, path: str) -> str:
        """The identifier of a new row; if nobody can create it, one that no row has."""
        if path in LOGINS:
            return self._log_in(path)
        fields = self.fields(path)
        with contextlib.suppress(Exception):
            return str(find(self.client, path).create(**fields).id)
        with contextlib.suppress(ginnel.GinnelError), self._service.client() as remote:
            url = f"/{path.replace('.', '/')}"
            made: Any = remote.request("POST", url, json=plain(fields))
            return str(made["id"])
        return RESOURCES[path].missing

    def _log_in(self, path: str) -> str:
        """The identifier of a visitor who has logged in, or of what that has made."""
        host = self.host()
        with Issuer() as issuer, self._service.client() as remote:
            issuer.claims["sub"] = self.name()
            login = {"issuer_url": issuer.url, "client_id": CLIENT_ID}
            login["client_secret"] = CLIENT_SECRET
            rules = [
                {"actions": [{"type": "openid-connect", "config": login}]},
                {"actions": [{"type": "custom-response", "config": {"status_code": 200}}]},
            ]
            traffic_policy = json.dumps({"on_http_request": rules})
            url = f"https://{host}"
            remote.endpoints.create(url=url, type="cloud", traffic_policy=traffic_policy)
            Visitor(self._service, host).log_in()
            newest: Any = next(iter(find(remote, path).list()))
            return str(newest.id)

    def owner(self, path: str) -> tuple[str, ...]:
        """The identifiers of a new edge, or of a new route and its edge."""
        if path != "edges.https_routes":
            return (self.create(path),)
        fields = self.fields(path)
        return (fields["edge_id"], str(self.client.edges.https_routes.create(**fields).id))

    def certificate(self, *hosts: str) -> Fields:
        issued = self.authority.issue_cert(*hosts)
        chain = b"".join(part.bytes() for part in issued.cert_chain_pems)
        return {
            "certificate_pem": chain.decode(),
            "private_key_pem": issued.private_key_pem.bytes().decode(),
        }


def plain(value: Any) -> Any:
    """What a class of the client holds, as JSON would."""
    if hasattr(value, "_props"):
        return plain(value._props)
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    return value


def find(client: Any, path: str) -> Any:
    """The service of the client at a path such as `edges.https`."""
    for name in path.split("."):
        client = getattr(client, name)
    return client


def policy(body: str) -> str:
    """A traffic policy that responds itself."""
    config = {"status_code": 200, "content": body}
    return json.dumps(
        {"on_http_request": [{"actions": [{"type": "custom-response", "config": config}]}]}
    )


def public_key() -> str:
    key = Ed25519PrivateKey.generate().public_key()
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def nothing(_: Rows) -> Fields:
    return {}


def described(_: Rows) -> Fields:
    return {"description": "changed"}


@dataclass(frozen=True)
class Resource:
    """One resource whose rows are created, read, changed and deleted."""

    prefix: str
    create: Callable[[Rows], Fields] = nothing
    update: Callable[[Rows], Fields] = described
    write_only: frozenset[str] = field(default=frozenset())
    """Fields that no response shows."""

    @property
    def missing(self) -> str:
        """An identifier that no row has."""
        return f"{self.prefix}_{'0' * 27}"


def ssh_certificate(rows: Rows) -> Fields:
    return {
        "ssh_certificate_authority_id": rows.create("ssh_certificate_authorities"),
        "public_key": public_key(),
        "principals": ["example.test"],
        # The client cannot encode its own defaults.
        "valid_after": "2030-01-01T00:00:00Z",
        "valid_until": "2031-01-01T00:00:00Z",
    }


def reserved_domain(rows: Rows) -> Fields:
    host = rows.host()
    made = rows.client.tls_certificates.create(**rows.certificate(host))
    return {"domain": host, "description": "made", "certificate_id": made.id}


def https_route(rows: Rows) -> Fields:
    page = rows.create("backends.http_response")
    return {
        "edge_id": rows.create("edges.https"),
        "match_type": "path_prefix",
        "match": "/",
        "description": "made",
        "backend": rows.argument("EndpointBackendMutate", enabled=True, backend_id=page),
    }


def edge(rows: Rows) -> Fields:
    return {"hostports": [f"{rows.host()}:443"], "description": "made", "metadata": "m"}


def tcp_edge(rows: Rows) -> Fields:
    return {"hostports": [str(rows.client.reserved_addrs.create().addr)], "description": "made"}


def tls_edge(rows: Rows) -> Fields:
    # Modules that act in handshakes need TLS that ends at the edge.
    ends = rows.argument("EndpointTLSTermination", terminate_at="edge")
    return {**edge(rows), "tls_termination": ends}


def event_destination(rows: Rows) -> Fields:
    webhook = {"url": f"https://{rows.host()}/events"}
    return {
        "description": "made",
        "format": "json",
        "target": rows.argument("EventTarget", webhook=webhook),
    }


def event_subscription(rows: Rows) -> Fields:
    return {
        "description": "made",
        "sources": [rows.argument("EventSourceReplace", type=CREATED)],
        "destination_ids": [rows.create("event_destinations")],
    }


def endpoint(rows: Rows) -> Fields:
    return {
        "url": f"http://{rows.host()}",
        "type": "cloud",
        "traffic_policy": policy(PAGE),
        "description": "made",
        "metadata": "m",
        "bindings": ["public"],
    }


RESOURCES: Mapping[str, Resource] = {
    "abuse_reports": Resource("abrp", lambda rows: {"urls": [f"https://{rows.host()}"]}),
    "agent_ingresses": Resource("agin", lambda rows: {"domain": rows.host()}),
    "api_keys": Resource("ak", lambda _: {"description": "made", "metadata": "m"}),
    "application_sessions": Resource("as"),
    "application_users": Resource("au"),
    "bot_users": Resource(
        "bot",
        lambda rows: {"name": rows.name(), "active": True},
        lambda rows: {"name": rows.name(), "active": False},
    ),
    "certificate_authorities": Resource(
        "ca",
        lambda rows: {"ca_pem": rows.authority.cert_pem.bytes().decode(), "description": "made"},
    ),
    "credentials": Resource(
        "cr",
        lambda _: {"description": "made", "acl": ["bind:*.example.test"]},
        lambda _: {"acl": ["bind:other.example.test"]},
    ),
    "endpoints": Resource(
        "ep",
        endpoint,
        lambda _: {"traffic_policy": policy("changed"), "description": "changed"},
    ),
    "event_destinations": Resource("ed", event_destination),
    "event_subscriptions": Resource("esb", event_subscription),
    "ip_policies": Resource("ipp", lambda _: {"description": "made", "metadata": "m"}),
    "ip_policy_rules": Resource(
        "ipr",
        lambda rows: {
            "cidr": "198.51.100.0/24",
            "ip_policy_id": rows.create("ip_policies"),
            "action": "deny",
        },
        lambda _: {"cidr": "203.0.113.0/24", "description": "changed"},
    ),
    "ip_restrictions": Resource(
        "ipx",
        lambda rows: {
            "type": "agent",
            "ip_policy_ids": [rows.create("ip_policies")],
            "enforced": False,
        },
    ),
    "reserved_addrs": Resource("ra", lambda _: {"description": "made", "metadata": "m"}),
    "reserved_domains": Resource("rd", reserved_domain),
    "secrets": Resource(
        "secret",
        lambda rows: {"name": rows.name(), "value": "v", "vault_id": rows.create("vaults")},
        lambda _: {"value": "another", "description": "changed"},
        write_only=frozenset({"value"}),
    ),
    "service_users": Resource(
        "bot",
        lambda rows: {"name": rows.name(), "active": True},
        lambda rows: {"name": rows.name(), "active": False},
    ),
    "ssh_certificate_authorities": Resource(
        "sshca", lambda _: {"description": "made", "private_key_type": "ed25519"}
    ),
    "ssh_credentials": Resource("sshcr", lambda _: {"public_key": public_key()}),
    "ssh_host_certificates": Resource("shcrt", ssh_certificate),
    "ssh_user_certificates": Resource("sucrt", ssh_certificate),
    "tls_certificates": Resource(
        "cert",
        lambda rows: {**rows.certificate(rows.host()), "description": "made"},
        write_only=frozenset({"private_key_pem"}),
    ),
    "vaults": Resource(
        "vault", lambda rows: {"name": rows.name()}, lambda rows: {"name": rows.name()}
    ),
    "backends.failover": Resource(
        "bkdfo",
        lambda rows: {"backends": [rows.create("backends.http_response")]},
        lambda rows: {"backends": [rows.create("backends.http_response")]},
    ),
    "backends.http_response": Resource(
        "bkdhr",
        lambda _: {"body": PAGE, "headers": {"content-type": "text/plain"}, "status_code": 200},
        lambda _: {"body": "changed", "status_code": 201},
    ),
    "backends.static_address": Resource(
        "bkdsc",
        lambda rows: {
            "address": "localhost:8080",
            "tls": rows.argument("StaticBackendTLS", enabled=False),
        },
        lambda _: {"address": "localhost:8081", "description": "changed"},
    ),
    "backends.tunnel_group": Resource(
        "bkdtg", lambda _: {"labels": {"a": "b"}}, lambda _: {"labels": {"a": "c"}}
    ),
    "backends.weighted": Resource(
        "bkdwd",
        lambda rows: {"backends": {rows.create("backends.http_response"): 1}},
        lambda rows: {"backends": {rows.create("backends.http_response"): 2}},
    ),
    "edges.https": Resource("edghts", edge),
    "edges.tcp": Resource("edgtcp", tcp_edge),
    "edges.tls": Resource("edgtls", tls_edge),
    "edges.https_routes": Resource(
        "edghtsrt",
        https_route,
        lambda _: {"match_type": "exact_path", "match": "/changed", "description": "changed"},
    ),
}


def backend(rows: Rows) -> Fields:
    return {"backend_id": rows.create("backends.static_address")}


def page_backend(rows: Rows) -> Fields:
    return {"backend_id": rows.create("backends.http_response")}


def ip_restriction(rows: Rows) -> Fields:
    return {"ip_policy_ids": [rows.create("ip_policies")]}


def mutual_tls(rows: Rows) -> Fields:
    return {"certificate_authority_ids": [rows.create("certificate_authorities")]}


def headers(_: Rows) -> Fields:
    return {"add": {"x-added": "1"}, "remove": ["x-removed"]}


def traffic_policy(_: Rows) -> Fields:
    return {"value": policy(PAGE)}


def connection_policy(_: Rows) -> Fields:
    return {"value": json.dumps({"inbound": [{"actions": [{"type": "deny"}]}]})}


def circuit_breaker(_: Rows) -> Fields:
    return {
        "tripped_duration": 11,
        "rolling_window": 12,
        "num_buckets": 13,
        "volume_threshold": 14,
        "error_threshold_percentage": 0.25,
    }


LOGIN = {
    "client_id": "shop",
    "client_secret": "s",
    "scopes": ["openid", "email"],
}


def oauth(_: Rows) -> Fields:
    google = {**LOGIN, "email_domains": ["example.test"], "email_addresses": []}
    return {"provider": {"google": google}, "cookie_prefix": "shop.", "maximum_duration": 3600}


def oidc(_: Rows) -> Fields:
    return {**LOGIN, "issuer": "https://login.example.test", "maximum_duration": 3600}


def saml(_: Rows) -> Fields:
    return {"idp_metadata": "<EntityDescriptor entityID='https://login.example.test'/>"}


MODULES: Mapping[str, tuple[str, Callable[[Rows], Fields]]] = {
    "https_edge_mutual_tls": ("edges.https", mutual_tls),
    "https_edge_tls_termination": ("edges.https", lambda _: {"min_version": "1.3"}),
    "https_edge_route_backend": ("edges.https_routes", page_backend),
    "https_edge_route_ip_restriction": ("edges.https_routes", ip_restriction),
    "https_edge_route_request_headers": ("edges.https_routes", headers),
    "https_edge_route_response_headers": ("edges.https_routes", headers),
    "https_edge_route_compression": ("edges.https_routes", nothing),
    "https_edge_route_circuit_breaker": ("edges.https_routes", circuit_breaker),
    "https_edge_route_webhook_verification": (
        "edges.https_routes",
        lambda _: {"provider": "github", "secret": "s"},
    ),
    "https_edge_route_oauth": ("edges.https_routes", oauth),
    "https_edge_route_saml": ("edges.https_routes", saml),
    "https_edge_route_oidc": ("edges.https_routes", oidc),
    "https_edge_route_websocket_tcp_converter": ("edges.https_routes", nothing),
    "https_edge_route_user_agent_filter": (
        "edges.https_routes",
        lambda _: {"allow": ["^good"], "deny": ["bot"]},
    ),
    "https_edge_route_traffic_policy": ("edges.https_routes", traffic_policy),
    "tcp_edge_backend": ("edges.tcp", backend),
    "tcp_edge_ip_restriction": ("edges.tcp", ip_restriction),
    "tcp_edge_traffic_policy": ("edges.tcp", connection_policy),
    "tls_edge_backend": ("edges.tls", backend),
    "tls_edge_ip_restriction": ("edges.tls", ip_restriction),
    "tls_edge_mutual_tls": ("edges.tls", mutual_tls),
    "tls_edge_tls_termination": (
        "edges.tls",
        lambda _: {"terminate_at": "edge", "min_version": "1.3"},
    ),
    "tls_edge_traffic_policy": ("edges.tls", connection_policy),
}
"""Each module: what owns it, and what it is replaced by."""
