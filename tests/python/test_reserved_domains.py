"""Reserved domains and TLS certificates: whose names they are, and what visitors are shown."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
import trustme

import ginnel
from test_certificates import connected, trusting


def uploaded(authority: trustme.CA, *names: str) -> dict[str, str]:
    """The arguments of an upload of a certificate for these names."""
    issued = authority.issue_cert(*names)
    chain = b"".join(part.bytes() for part in issued.cert_chain_pems)
    key = issued.private_key_pem.bytes()
    return {"certificate_pem": chain.decode(), "private_key_pem": key.decode()}


def names_shown(service: ginnel.Service, authority: trustme.CA | None, name: str) -> set[str]:
    """The names in the certificate that visitors of a name are shown."""
    context = trusting(service)
    if authority:
        context = ssl.create_default_context()
        authority.configure_trust(context)
    assert service.https_url
    port = int(service.https_url.rpartition(":")[2])
    shown = connected(("127.0.0.1", port), context, name)
    return {text for _, text in shown["subjectAltName"]}


@contextlib.contextmanager
def bot(service: ginnel.Service) -> Iterator[tuple[ginnel.RemoteClient, str, str]]:
    """A client of another owner, with the owner's identifier and an authtoken of theirs."""
    with service.client() as admin:
        owner = admin.bot_users.create(name="bot").id
        key = admin.api_keys.create(owner_id=owner)
        credential = admin.credentials.create(owner_id=owner)
    assert credential.token
    with ginnel.RemoteClient(key.token, base_url=service.url, max_retries=0) as remote:
        yield remote, owner, credential.token


async def test_a_certificate_says_what_it_is_and_never_its_key(client: Any) -> None:
    pair = uploaded(trustme.CA(organization_name="Tea"), "a.example.test", "*.b.example.test")

    made = await client.tls_certificates.create(**pair, description="mine", metadata="m")

    assert made.subject_alternative_names.dns_names == ["a.example.test", "*.b.example.test"]
    assert made.subject_alternative_names.ips == []
    assert made.certificate_pem == pair["certificate_pem"]
    assert made.private_key_type == "ecdsa"
    assert made.issued_at is None
    assert made.not_before < made.not_after
    assert made.extended_key_usages[-1:] == ["codeSigning"]
    assert (made.description, made.metadata) == ("mine", "m")
    assert await client.tls_certificates.get(made.id) == made
    assert [it async for it in client.tls_certificates.list()] == [made]
    changed = await client.tls_certificates.update(made.id, description="ours")
    assert (changed.description, changed.metadata) == ("ours", "m")
    for shown in (made, changed):
        assert "PRIVATE KEY" not in repr(shown.to_dict())
    await client.tls_certificates.delete(made.id)
    with pytest.raises(ginnel.NotFoundError):
        await client.tls_certificates.get(made.id)


async def test_a_domain_points_at_its_certificate_until_it_is_cleared(client: Any) -> None:
    certificate = await client.tls_certificates.create(**uploaded(trustme.CA(), "a.example.test"))
    domain = await client.reserved_domains.create(
        domain="A.Example.test.", region="eu", metadata="m"
    )
    assert (domain.domain, domain.region, domain.certificate) == ("a.example.test", "eu", None)
    assert (domain.cname_target, domain.certificate_management_policy) == (None, None)

    changed = await client.reserved_domains.update(domain.id, certificate_id=certificate.id)

    assert (changed.certificate.id, changed.metadata) == (certificate.id, "m")
    assert changed.certificate.uri == certificate.uri
    with pytest.raises(ginnel.ConflictError, match=domain.id):
        await client.tls_certificates.delete(certificate.id)
    cleared = await client.reserved_domains.update(domain.id, certificate_id="")
    assert cleared == domain
    await client.tls_certificates.delete(certificate.id)
    await client.reserved_domains.delete(domain.id)
    assert [it async for it in client.reserved_domains.list()] == []


async def test_a_domain_lets_go_of_its_certificate_and_policy(client: Any) -> None:
    certificate = await client.tls_certificates.create(**uploaded(trustme.CA(), "a.example.test"))
    domain = await client.reserved_domains.create(
        domain="a.example.test", certificate_id=certificate.id, resolves_to=[]
    )
    assert domain.certificate.id == certificate.id

    await client.reserved_domains.delete_certificate(domain.id)
    await client.reserved_domains.delete_policy(domain.id)

    assert (await client.reserved_domains.get(domain.id)).certificate is None
    await client.tls_certificates.delete(certificate.id)
    with pytest.raises(ginnel.NotFoundError):
        await client.reserved_domains.delete_certificate("rd_" + "2" * 27)


async def test_regions_are_refused(client: Any) -> None:
    regions = [{"value": "eu"}]
    with pytest.raises(ginnel.BadRequestError, match="resolves_to must be empty"):
        await client.reserved_domains.create(domain="a.example.test", resolves_to=regions)
    domain = await client.reserved_domains.create(domain="a.example.test")
    with pytest.raises(ginnel.BadRequestError, match="resolves_to must be empty"):
        await client.reserved_domains.update(domain.id, resolves_to=regions)


def test_the_policy_of_a_service_that_obtains_all_certificates_stays() -> None:
    nowhere = "https://127.0.0.1:1/directory"
    settings: Any = {"acme": {"directory": nowhere, "agree_to_terms": True}}
    with ginnel.Service(settings=settings) as service, service.client() as remote:
        domain = remote.reserved_domains.create(domain="a.example.test")

        with pytest.raises(ginnel.BadRequestError, match="give the domain a certificate_id"):
            remote.reserved_domains.delete_policy(domain.id)


def test_visitors_are_shown_the_certificate_of_the_domain_that_they_name() -> None:
    ours = trustme.CA()
    with ginnel.Service() as service, service.client() as remote:
        certificate = remote.tls_certificates.create(
            **uploaded(ours, "a.example.test", "*.example.test")
        )
        shows = certificate.id
        domain = remote.reserved_domains.create(domain="a.example.test", certificate_id=shows)
        wild = remote.reserved_domains.create(domain="*.example.test", certificate_id=shows)

        for name in ("a.example.test", "A.EXAMPLE.test", "b.example.test"):
            assert names_shown(service, ours, name) == {"a.example.test", "*.example.test"}
        # A wildcard stands for one label.
        assert names_shown(service, None, "x.b.example.test") == {"x.b.example.test"}

        remote.reserved_domains.delete(wild.id)
        assert names_shown(service, None, "b.example.test") == {"b.example.test"}
        assert names_shown(service, ours, "a.example.test") == {"a.example.test", "*.example.test"}
        other = remote.tls_certificates.create(**uploaded(ours, "a.example.test"))
        remote.reserved_domains.update(domain.id, certificate_id=other.id)
        assert names_shown(service, ours, "a.example.test") == {"a.example.test"}
        remote.reserved_domains.update(domain.id, certificate_id="")
        assert names_shown(service, None, "a.example.test") == {"a.example.test"}


def test_certificates_are_shown_after_a_restart(tmp_path: Any) -> None:
    ours = trustme.CA()
    with ginnel.Service(tmp_path / "a.db") as service, service.client() as remote:
        key = service.api_key
        certificate = remote.tls_certificates.create(**uploaded(ours, "a.example.test"))
        remote.reserved_domains.create(domain="a.example.test", certificate_id=certificate.id)

    with ginnel.Service(tmp_path / "a.db", api_key=key) as service:
        assert names_shown(service, ours, "a.example.test") == {"a.example.test"}


def test_an_uploaded_certificate_goes_before_a_given_one(tmp_path: Any) -> None:
    given, ours = trustme.CA(), trustme.CA()
    issued = given.issue_cert("a.example.test", "b.example.test")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "chain.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    files = (tmp_path / "chain.pem", tmp_path / "key.pem")
    with ginnel.Service(certificate=files) as service, service.client() as remote:
        certificate = remote.tls_certificates.create(**uploaded(ours, "a.example.test"))
        remote.reserved_domains.create(domain="a.example.test", certificate_id=certificate.id)

        assert names_shown(service, ours, "a.example.test") == {"a.example.test"}
        assert "b.example.test" in names_shown(service, given, "b.example.test")


def test_a_domain_is_its_owners_alone(service: ginnel.Service) -> None:
    with service.client() as admin, bot(service) as (remote, owner, _):
        domain = admin.reserved_domains.create(domain="*.a.example.test", owner_id=owner)
        assert domain.owner_id == owner

        with pytest.raises(ginnel.BadRequestError, match="reserved by another"):
            admin.edges.https.create(hostports=["x.a.example.test:443"])
        edge = remote.edges.https.create(hostports=["x.a.example.test:443"])
        with pytest.raises(ginnel.ConflictError, match=edge.id):
            remote.reserved_domains.delete(domain.id)
        other = admin.edges.https.create()
        with pytest.raises(ginnel.BadRequestError, match="reserved by another"):
            admin.edges.https.update(other.id, hostports=["y.a.example.test:443"])
        # What does not name hosts is anybody's to change.
        assert admin.edges.https.update(edge.id, description="x").description == "x"
        remote.edges.https.delete(edge.id)
        remote.reserved_domains.delete(domain.id)
        admin.edges.https.create(hostports=["x.a.example.test:443"])


def refusal(service: ginnel.Service, token: str | None, **options: Any) -> str:
    """Why a tunnel is refused; empty where it is not."""
    try:
        with ginnel.Agent(service, authtoken=token, timeout=20) as agent:
            agent.client().tunnels.start(addr=1, proto="http", name="app", **options)
    except (ginnel.AgentError, ginnel.APIStatusError) as refused:
        return str(refused)
    return ""


def test_agents_of_others_cannot_have_a_reserved_name() -> None:
    with (
        ginnel.Service(base_domain="example.test", reserve=0) as service,
        bot(service) as (remote, _, token),
    ):
        remote.reserved_domains.create(domain="mine.example.test")
        remote.reserved_domains.create(domain="*.wild.example.test")

        for name in ("mine.example.test", "x.wild.example.test", "*.wild.example.test"):
            assert "reserved by another" in refusal(service, service.authtoken, domain=name)
            assert refusal(service, token, domain=name) == ""
        assert refusal(service, service.authtoken, domain="other.example.test") == ""


def test_a_name_that_an_agent_of_another_has_cannot_be_reserved() -> None:
    with (
        ginnel.Service(base_domain="example.test") as service,
        service.client() as admin,
        bot(service) as (_, owner, token),
        ginnel.Agent(service, authtoken=token, timeout=20) as agent,
    ):
        agent.client().tunnels.start(addr=1, proto="http", name="app", domain="app.example.test")

        for name in ("app.example.test", "*.example.test"):
            with pytest.raises(ginnel.ConflictError, match="in use by the tunnel"):
                admin.reserved_domains.create(domain=name)
            made = admin.reserved_domains.create(domain=name, owner_id=owner)
            admin.reserved_domains.delete(made.id)


def test_only_reserved_domains_may_be_used_where_the_service_says_so() -> None:
    options: dict[str, Any] = {"base_domain": "example.test", "reserve": 0}
    with (
        ginnel.Service(reserved_domains_only=True, **options) as service,
        service.client() as remote,
    ):
        remote.reserved_domains.create(domain="mine.example.test")

        assert refusal(service, None, domain="mine.example.test") == ""
        assert "is not reserved" in refusal(service, None, domain="other.example.test")
        # The names that the service makes are reserved by nobody.
        assert "is not reserved" in refusal(service, None)
        remote.edges.https.create(hostports=["mine.example.test:443"])
        with pytest.raises(ginnel.BadRequestError, match="is not reserved"):
            remote.edges.https.create(hostports=["other.example.test:443"])
        remote.edges.tcp.create()
