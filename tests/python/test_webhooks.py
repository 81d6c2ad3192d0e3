"""`verify-webhook`: for each provider a genuine delivery passes, a forged and a late one do not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request

import pytest

import ginnel
from ginnel import policy
from webhook_signers import FORM, SIGNERS, Delivery, now, sha256, text

HOST = "hooks.example.test"
URL = f"http://{HOST}"
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "webhooks.md"


def rule(name: str) -> dict[str, object]:
    config = {"provider": name, "secret": SIGNERS[name].secret}
    return {
        "expressions": [f"req.url.path == '/{name}'"],
        "actions": [
            {"type": "verify-webhook", "config": config},
            {"type": "custom-response", "config": {"body": "in"}},
        ],
    }


@pytest.fixture(scope="module")
def service() -> Iterator[ginnel.Service]:
    """A service with an edge whose policy verifies the deliveries of all providers, by path."""
    with ginnel.Service() as service:
        with service.client() as remote:
            edge = remote.edges.https.create(hostports=[f"{HOST}:80"])
            remote.edges.https.routes.create(
                edge.id,
                match_type="path_prefix",
                match="/",
                policy={"inbound": [rule(name) for name in SIGNERS]},
            )
        yield service


def send(service: ginnel.Service, delivery: Delivery) -> tuple[int, str]:
    body = None if delivery.method == "GET" else delivery.body
    headers = {"content-type": "application/octet-stream", **delivery.headers}
    request = Request(delivery.url, body, headers, method=delivery.method)
    try:
        with service.opener().open(request) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize("name", SIGNERS)
def test_genuine_deliveries_pass_and_no_others(service: ginnel.Service, name: str) -> None:
    signer, url = SIGNERS[name], f"{URL}/{name}"
    refused = 401 if name == "xero" else 403

    genuine = signer.deliver(url, now())
    late = signer.deliver(url, now() - timedelta(hours=1))

    assert send(service, genuine) == (200, "in")
    assert send(service, signer.forge(genuine))[0] == refused
    assert send(service, replace(genuine, headers={}))[0] == (200 if name == "mailgun" else refused)
    assert send(service, late)[0] == (refused if signer.timed else 200)


def test_the_guide_lists_every_provider() -> None:
    listed = [line for line in GUIDE.read_text().splitlines() if line.startswith("| `")]
    names = [name.strip("` ") for line in listed for name in line.split("|")[1].split(",")]

    assert sorted(names) == sorted(SIGNERS)


def test_a_provider_that_is_not_there_is_refused() -> None:
    def problem(name: str) -> str:
        config = {"provider": name, "secret": "x"}
        rule = {"actions": [{"type": "verify-webhook", "config": config}]}
        [problem] = policy.check({"on_http_request": [rule]})
        assert problem.code == 2204
        return problem.message

    assert "there is no provider" in problem("nobody")
    assert "certificate that would have to be fetched" in problem("sns")


def test_older_ways_to_sign_pass(service: ginnel.Service) -> None:
    """What providers still send to those who set them up long ago."""

    def delivery(name: str, body: bytes = b"{}") -> Delivery:
        return Delivery(f"{URL}/{name}", SIGNERS[name].secret, now(), body)

    box = delivery("box")
    signed = text(box.mac(box.body, box.iso))
    square = delivery("square")
    buildkite = delivery("buildkite")
    url_signed = text(square.mac(square.url, square.body, hash="sha1"))
    mailgun = delivery("mailgun")
    fields = {"timestamp": mailgun.seconds, "token": "t"}
    fields["signature"] = mailgun.mac(*fields.values()).hex()
    form = "&".join(f"{name}={quote(value)}" for name, value in fields.items()).encode()
    deliveries = [
        replace(box, headers={"box-delivery-timestamp": box.iso, "box-signature-primary": signed}),
        replace(square, headers={"x-square-signature": url_signed}),
        replace(buildkite, headers={"X-Buildkite-Token": "s3cret"}),
        replace(mailgun, body=form),
    ]

    for one in deliveries:
        assert send(service, one) == (200, "in"), one
        wrong = {name: value.replace("=", "A") + "x" for name, value in one.headers.items()}
        if wrong:
            assert send(service, replace(one, headers=wrong))[0] == 403


def test_an_older_signature_does_not_stand_for_the_newer_one(service: ginnel.Service) -> None:
    """Providers send both, and the older one says less: neither time nor body."""
    late = now() - timedelta(hours=1)
    hubspot = SIGNERS["hubspot"].deliver(f"{URL}/hubspot", late)
    older = {"X-HubSpot-Signature": sha256(b"s3cret" + hubspot.body)}
    plivo = Delivery(f"{URL}/plivo", "s3cret", now(), FORM)
    second = {
        "X-Plivo-Signature-V2": text(plivo.mac(plivo.url, "n")),
        "X-Plivo-Signature-V2-Nonce": "n",
    }

    assert send(service, replace(hubspot, headers={**hubspot.headers, **older}))[0] == 403
    assert send(service, replace(hubspot, headers=older))[0] == 403
    assert send(service, replace(plivo, headers=second))[0] == 403


def test_headers_that_the_signature_does_not_list_are_nobodys(service: ginnel.Service) -> None:
    """What is not listed may be changed, and a list may pretend to be longer than it is."""
    genuine = SIGNERS["contentful"].deliver(f"{URL}/contentful", now() - timedelta(hours=1))
    headers = dict(genuine.headers)
    names = sorted(headers.keys() - {"x-contentful-signature"})
    first, *others = names
    rest = ";".join(f"{name}:{headers[name]}" for name in others)
    moved = {
        **headers,
        first: f"{headers[first]};{rest}",
        "x-contentful-signed-headers": first,
        "x-contentful-timestamp": Delivery(genuine.url, "s3cret", now()).milliseconds,
    }

    assert send(service, replace(genuine, headers=moved))[0] == 403


def test_a_key_that_is_empty_or_of_another_form_signs_nothing(service: ginnel.Service) -> None:
    def problems(name: str, secret: str) -> list[int]:
        config = {"provider": name, "secret": secret}
        rule = {"actions": [{"type": "verify-webhook", "config": config}]}
        return [problem.code for problem in policy.check({"on_http_request": [rule]})]

    assert problems("sendgrid", "-----BEGIN PUBLIC KEY-----") == [2204]
    assert problems("svix", "whsec_") == [2204]
    assert problems("svix", "whsec_czNjcmV0") == []


def test_a_body_that_is_no_form_is_signed_by_its_hash_in_the_url(service: ginnel.Service) -> None:
    body = b'{"a": 1}'
    url = f"{URL}/twilio?bodySHA256={sha256(body)}"
    made = Delivery(url, "s3cret", now(), body)
    signed = replace(made, headers={"X-Twilio-Signature": text(made.mac(url, hash="sha1"))})

    assert send(service, signed) == (200, "in")
    assert send(service, replace(signed, body=b'{"a": 2}'))[0] == 403


def test_providers_that_ask_first_are_answered(service: ginnel.Service) -> None:
    query = "crc_token=abc&nonce=1"
    asked = Delivery(f"{URL}/twitter?{query}", "s3cret", now(), b"", "GET")
    signed = f"sha256={text(asked.mac(query))}"

    status, body = send(service, replace(asked, headers={"x-twitter-webhooks-signature": signed}))

    assert (status, json.loads(body)) == (
        200,
        {"response_token": f"sha256={text(asked.mac('abc'))}"},
    )
    assert send(service, asked)[0] == 403, "whoever signs nothing gets nothing signed"

    asked = Delivery(f"{URL}/worldline", "s3cret", now(), b"", "GET")
    headers = {"X-GCS-Webhooks-Endpoint-Verification": "say this"}
    assert send(service, replace(asked, headers=headers)) == (200, "say this")

    intent = replace(SIGNERS["xero"], body=b'{"events":[],"entropy":"x"}')
    assert send(service, intent.deliver(f"{URL}/xero", now())) == (200, "")

    asks = b'{"event":"endpoint.url_validation","payload":{"plainToken":"abc"}}'
    zoom = replace(SIGNERS["zoom"], body=asks).deliver(f"{URL}/zoom", now())
    status, reply = send(service, zoom)
    assert status == 200
    assert json.loads(reply) == {"plainToken": "abc", "encryptedToken": zoom.mac("abc").hex()}
