"""Nothing that is secret leaves with an event, is in the audit trail, or is returned later."""

from __future__ import annotations

import base64
import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import trustme

from event_receiver import Receiver, quick_service
from postgres import ON_BOTH_STORES
from processes import wait_until

MARK = "swordfish"


def secret_of(destination: Any) -> str:
    return str(destination.target.webhook.secret)


def everything() -> list[str]:
    """Every type of events that there is, as the guide has them."""
    singular = {
        "api_key",
        "bot_user",
        "certificate_authority",
        "credential",
        "endpoint",
        "event_destination",
        "event_subscription",
        "failover_backend",
        "http_response_backend",
        "ip_policy",
        "ip_policy_rule",
        "account_ip_restriction",
        "reserved_addr",
        "reserved_domain",
        "https_edge",
        "https_edge_route",
        "static_backend",
        "tcp_edge",
        "tls_certificate",
        "tls_edge",
        "tunnel_group_backend",
        "vault",
        "vault_secret",
        "weighted_backend",
    }
    kinds = ("created", "updated", "deleted")
    types = [f"{name}_{kind}.v0" for name in sorted(singular) for kind in kinds]
    return [*types, "http_request_complete.v0", "tcp_connection_closed.v0"]


def policy(action: str, **config: Any) -> str:
    rule = {"actions": [{"type": action, "config": config}]}
    return json.dumps({"on_http_request": [rule]})


def create_all(remote: Any) -> tuple[list[Any], list[str]]:
    """One of each resource with what is secret of it; also the secrets that the service made."""
    authority = trustme.CA()
    issued = authority.issue_cert("own.example.test")
    chain = b"".join(part.bytes() for part in issued.cert_chain_pems).decode()
    key = issued.private_key_pem.bytes().decode()
    signing = "whsec_" + base64.b64encode(f"{MARK}-of-a-destination-of-events".encode()).decode()
    basic = policy("basic-auth", credentials=[f"me:{MARK}-pass"])

    bot = remote.bot_users.create(name="ci")
    api_key = remote.api_keys.create(owner_id=bot.id)
    credential = remote.credentials.create()
    # Many programs have both in one file.
    certificate = remote.tls_certificates.create(certificate_pem=chain + key, private_key_pem=key)
    assert certificate.certificate_pem == chain
    authority_key = authority.private_key_pem.bytes().decode()
    authority_pem = authority.cert_pem.bytes().decode()
    mutual = remote.certificate_authorities.create(ca_pem=authority_key + authority_pem)
    assert mutual.ca_pem == authority_pem
    ip_policy = remote.ip_policies.create()
    rule = remote.ip_policy_rules.create(
        ip_policy_id=ip_policy.id, cidr="127.0.0.0/8", action="allow"
    )
    restriction = remote.ip_restrictions.create(type="agent", ip_policy_ids=[ip_policy.id])
    domain = remote.reserved_domains.create(
        domain="own.example.test", certificate_id=certificate.id
    )
    address = remote.reserved_addrs.create()
    page = remote.backends.http_response.create(
        body="hello", headers={"Set-Cookie": f"session={MARK}"}
    )
    group = remote.backends.tunnel_group.create(labels={"app": "web"})
    static = remote.backends.static.create(address="127.0.0.1:1")
    failover = remote.backends.failover.create(backends=[page.id])
    weighted = remote.backends.weighted.create(backends={page.id: 1})
    edge = remote.edges.https.create(hostports=["own.example.test:443"])
    route = remote.edges.https.routes.create(edge.id, match_type="path_prefix", match="/")
    modules = remote.edges.https.routes
    modules.webhook_verification.replace(
        edge.id, route.id, provider="github", secret=f"{MARK}-of-github"
    )
    modules.traffic_policy.replace(edge.id, route.id, value=basic)
    tcp = remote.edges.tcp.create(hostports=[str(address.addr)])
    tls = remote.edges.tls.create(hostports=["tls.example.test:443"])
    vault = remote.vaults.create(name="keys")
    secret = remote.vault_secrets.create(name="db", value=f"{MARK}-of-vault", vault_id=vault.id)
    endpoint = remote.endpoints.create(
        url="https://cloud.example.test",
        type="cloud",
        bindings=["public"],
        traffic_policy=policy("verify-webhook", provider="github", secret=f"{MARK}-of-policy"),
    )
    hook = {"url": "https://hooks.example.test/", "secret": signing}
    destination = remote.event_destinations.create(target={"webhook": hook})
    made = remote.event_destinations.create(target={"webhook": {"url": "https://b.test/"}})
    subscription = remote.event_subscriptions.create(sources=[])
    secrets = [
        str(api_key.token),
        str(credential.token),
        str(made.target.webhook.secret),
        signing,
        key.splitlines()[1],
        authority_key.splitlines()[1],
    ]
    rows = [
        (remote.api_keys, api_key),
        (remote.credentials, credential),
        (remote.ip_restrictions, restriction),
        (remote.ip_policy_rules, rule),
        (remote.ip_policies, ip_policy),
        (remote.edges.tcp, tcp),
        (remote.edges.tls, tls),
        (remote.vault_secrets, secret),
        (remote.vaults, vault),
        (remote.edges.https, edge),
        (remote.reserved_addrs, address),
        (remote.reserved_domains, domain),
        (remote.tls_certificates, certificate),
        (remote.certificate_authorities, mutual),
        (remote.backends.weighted, weighted),
        (remote.backends.failover, failover),
        (remote.backends.static, static),
        (remote.backends.tunnel_group, group),
        (remote.backends.http_response, page),
        (remote.endpoints, endpoint),
        (remote.event_subscriptions, subscription),
        (remote.event_destinations, destination),
        (remote.event_destinations, made),
        (remote.bot_users, bot),
    ]
    return rows, secrets


JSON = f'''{{"enabled": true, "on_http_request": [{{"name": "{MARK}-name",
"expressions": ["req.headers['x-k'][0] == '{MARK}-x'"], "actions": [{{"type": "basic-auth",
"config": {{"credentials": ["me:{MARK}-pass"]}}}}, {{"type": "add-headers", "config": {{"headers":
{{"x-upstream-pass": "{MARK}-header"}}}}}}]}}]}}'''
YAML = f"""on_http_request:
  - name: {MARK}-name
    expressions: ["req.headers['x-k'][0] == '{MARK}-x'"]
    actions:
      - type: set-vars
        config: {{vars: [{{db_pw: "{MARK}-var"}}]}}
      - type: custom-response
        config: {{status_code: 200, body: {MARK}-body}}
"""


@pytest.mark.parametrize("text", [JSON, JSON.replace("\n", "\n\t"), YAML])
def test_no_text_of_a_policy_is_in_an_event(text: str) -> None:
    rule = {
        "name": f"{MARK}-name",
        "expressions": [f"req.headers['x-k'][0] == '{MARK}-x'"],
        "actions": [{"type": "add-headers", "config": {"headers": {"x-b": f"{MARK}-header"}}}],
    }
    types = ["endpoint_created.v0", "https_edge_route_created.v0", "https_edge_route_updated.v0"]
    with (
        Receiver() as receiver,
        quick_service() as service,
        service.client() as remote,
    ):
        destination = remote.event_destinations.create(target={"webhook": {"url": receiver.url}})
        remote.event_subscriptions.create(
            sources=[{"type": name} for name in types], destination_ids=[destination.id]
        )
        remote.endpoints.create(
            url="https://cloud.example.test",
            type="cloud",
            bindings=["public"],
            traffic_policy=text,
        )
        edge = remote.edges.https.create(hostports=["own.example.test:443"])
        routes = remote.edges.https.routes
        route = routes.create(
            edge.id, match_type="path_prefix", match="/", traffic_policy={"value": text}
        )
        routes.create(edge.id, match_type="path_prefix", match="/a", policy={"inbound": [rule]})
        routes.request_headers.replace(edge.id, route.id, add={"x-upstream": f"{MARK}-header"})
        events = [delivery.body.decode() for delivery in receiver.wait_for(4)]

    assert not [event for event in events if MARK in event]


def test_a_key_that_an_earlier_version_stored_with_its_certificate_is_not_shown(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ginnel.db"
    authority = trustme.CA()
    issued = authority.issue_cert("own.example.test")
    chain = b"".join(part.bytes() for part in issued.cert_chain_pems).decode()
    key = issued.private_key_pem.bytes().decode()
    trusted = authority.cert_pem.bytes().decode()
    with quick_service({"path": str(path)}) as service, service.client() as remote:
        certificate = remote.tls_certificates.create(certificate_pem=chain, private_key_pem=key)
        mutual = remote.certificate_authorities.create(ca_pem=trusted)
        admin_key = service.api_key
    with contextlib.closing(sqlite3.connect(path)) as database:
        for name, row in (("certificate_pem", certificate), ("ca_pem", mutual)):
            text = getattr(row, name) + key
            changed = database.execute(
                f"UPDATE resources SET body = json_set(body, '$.{name}', ?) WHERE id = ?",
                (text, row.id),
            )
            assert changed.rowcount == 1
        database.commit()

    with (
        Receiver() as receiver,
        quick_service({"path": str(path), "api_key": admin_key}) as service,
        service.client() as remote,
    ):
        destination = remote.event_destinations.create(target={"webhook": {"url": receiver.url}})
        types = ["tls_certificate_deleted.v0", "certificate_authority_deleted.v0"]
        remote.event_subscriptions.create(
            sources=[{"type": name} for name in types], destination_ids=[destination.id]
        )
        assert remote.tls_certificates.get(certificate.id).certificate_pem == chain
        assert remote.certificate_authorities.get(mutual.id).ca_pem == trusted
        assert [row.certificate_pem for row in remote.tls_certificates.list()] == [chain]
        remote.tls_certificates.delete(certificate.id)
        remote.certificate_authorities.delete(mutual.id)
        events = [delivery.event["object"] for delivery in receiver.wait_for(2)]

    assert [events[0]["certificate_pem"], events[1]["ca_pem"]] == [chain, trusted]


@ON_BOTH_STORES
def test_no_secret_is_in_an_event_or_the_audit_trail(storage: dict[str, Any]) -> None:
    key = base64.b64encode(bytes(32)).decode()
    with Receiver() as receiver:
        with quick_service(storage, vault_key=key) as service, service.client() as remote:
            destination = remote.event_destinations.create(
                target={"webhook": {"url": receiver.url}}
            )
            types = everything()
            remote.event_subscriptions.create(
                sources=[{"type": name} for name in types], destination_ids=[destination.id]
            )
            rows, secrets = create_all(remote)
            fetched = [str(resource.get(row.id).to_dict()) for resource, row in rows]
            for resource, row in rows:
                if resource is not remote.bot_users:
                    resource.update(row.id, description="changed")
            for resource, row in rows:
                resource.delete(row.id)
            deleted = {name for name in types if name.endswith("_deleted.v0")}
            wait_until(
                lambda: deleted <= {it.type for it in list(receiver.accepted)},
                "what is deleted is told",
            )
            audit = [str(event.to_dict()) for event in remote.audit_events.list()]
            secrets.append(secret_of(destination))

        told = {delivery.type for delivery in receiver.accepted}
        assert {name for name in types if "_created." in name or "_deleted." in name} <= told
        assert len(told) > 55
        events = [delivery.body.decode() for delivery in receiver.accepted]
        for secret in (*secrets, MARK, base64.b64encode(MARK.encode()).decode()[:10]):
            for text in (*events, *audit):
                assert secret not in text, text
        # What GET returns has policies as they were written, and nothing declared as a secret.
        for secret in secrets:
            for text in fetched:
                assert secret not in text, text
        policies = [
            it for it in events if "https_edge_route_updated.v0" in it or "endpoint_cre" in it
        ]
        assert any("traffic_policy" in event for event in policies)
