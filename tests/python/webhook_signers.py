"""Signatures as providers make them: each by the provider's own documentation, which is named."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from urllib.parse import parse_qsl, urlencode, urlsplit

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

KEY = ec.generate_private_key(ec.SECP256R1())
"""What stands for the key of SendGrid."""

FORM = urlencode({"To": "+15550100", "From": "Å + b", "Body": "a=b&c"}).encode()
JSON = '{"event":"made","text":"grüße \\"you\\"\\n"}'.encode()


@dataclass(frozen=True)
class Delivery:
    """A request of a provider."""

    url: str
    secret: str
    now: datetime
    body: bytes = JSON
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def seconds(self) -> str:
        return str(int(self.now.timestamp()))

    @property
    def milliseconds(self) -> str:
        return str(int(self.now.timestamp() * 1000))

    @property
    def iso(self) -> str:
        return self.now.strftime("%Y-%m-%dT%H:%M:%SZ")

    def mac(self, *parts: bytes | str, hash: str = "sha256", key: bytes | None = None) -> bytes:
        content = b"".join(part.encode() if isinstance(part, str) else part for part in parts)
        return hmac.new(self.secret.encode() if key is None else key, content, hash).digest()


Sign = Callable[[Delivery], "dict[str, str] | Delivery"]


@dataclass(frozen=True)
class Signer:
    """How a provider signs."""

    source: str
    """The documentation."""
    sign: Sign
    secret: str = "s3cret"
    timed: bool = False
    """Whether the time is signed."""
    body: bytes = JSON
    forged_body: bool = True
    """Whether another body makes the signature a wrong one; where not, it is the header that is."""

    def deliver(self, url: str, now: datetime) -> Delivery:
        delivery = Delivery(url, self.secret, now, self.body)
        signed = self.sign(delivery)
        return signed if isinstance(signed, Delivery) else replace(delivery, headers=signed)

    def forge(self, delivery: Delivery) -> Delivery:
        if self.forged_body:
            # The token of Mailgun, whose signature is in the body as well.
            mark = b"tokentoken" if b"tokentoken" in delivery.body else b"a"
            return replace(delivery, body=delivery.body.replace(mark, mark[:-1] + b"o", 1))
        headers = {name: f"{value[:-3]}AA=" for name, value in delivery.headers.items()}
        return replace(delivery, headers=headers)


def text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def hexed(header: str, prefix: str = "", hash: str = "sha256") -> Sign:
    return lambda it: {header: prefix + it.mac(it.body, hash=hash).hex()}


def based(header: str, prefix: str = "", hash: str = "sha256") -> Sign:
    return lambda it: {header: prefix + text(it.mac(it.body, hash=hash))}


def paired(header: str, time: str, signature: str) -> Sign:
    """Time and signature in one header."""

    def sign(it: Delivery) -> dict[str, str]:
        digest = it.mac(it.seconds, ".", it.body).hex()
        return {header: f"{time}={it.seconds},{signature}={digest}"}

    return sign


def versioned(header: str, time: str, version: str, iso: bool = False) -> Sign:
    """The version, the time and the body, with colons between."""

    def sign(it: Delivery) -> dict[str, str]:
        now = it.iso if iso else it.seconds
        digest = it.mac(f"{version}:{now}:", it.body).hex()
        return {header: f"{version}={digest}", time: now}

    return sign


def standard(prefix: str) -> Sign:
    def sign(it: Delivery) -> dict[str, str]:
        key = base64.b64decode(it.secret.removeprefix("whsec_"))
        digest = it.mac(f"msg_1.{it.seconds}.", it.body, key=key)
        return {
            f"{prefix}-id": "msg_1",
            f"{prefix}-timestamp": it.seconds,
            f"{prefix}-signature": f"v1,{text(b'another')} v1,{text(digest)}",
        }

    return sign


def sorted_form(it: Delivery) -> str:
    pairs = parse_qsl(it.body.decode(), keep_blank_values=True)
    return "".join(name + value for name, value in sorted(pairs))


def of_url_and_form(header: str) -> Sign:
    return lambda it: {header: text(it.mac(it.url, sorted_form(it), hash="sha1"))}


def airship(it: Delivery) -> dict[str, str]:
    digest = it.mac(it.seconds, ":", it.body).hex()
    return {"X-UA-TIMESTAMP": it.seconds, "X-UA-SIGNATURE": digest}


def box(it: Delivery) -> dict[str, str]:
    digest = text(it.mac(it.body, it.iso))
    return {"BOX-DELIVERY-TIMESTAMP": it.iso, "BOX-SIGNATURE-SECONDARY": digest}


def contentful(it: Delivery) -> dict[str, str]:
    headers = {"x-contentful-timestamp": it.milliseconds, "x-contentful-topic": "Entry.save"}
    names = sorted([*headers, "x-contentful-signed-headers"])
    headers["x-contentful-signed-headers"] = ",".join(names)
    listed = ";".join(f"{name}:{headers[name]}" for name in names)
    parts = urlsplit(it.url)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    digest = it.mac("\n".join([it.method, path, listed, ""]), it.body).hex()
    return {**headers, "x-contentful-signature": digest}


def hubspot(it: Delivery) -> dict[str, str]:
    digest = text(it.mac(it.method, it.url, it.body, it.milliseconds))
    return {"X-HubSpot-Signature-v3": digest, "X-HubSpot-Request-Timestamp": it.milliseconds}


def hygraph(it: Delivery) -> dict[str, str]:
    signed = json.dumps(
        {
            "Body": it.body.decode(),
            "EnvironmentName": "master",
            "TimeStamp": int(it.milliseconds),
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )
    return {"gcms-signature": f"sign={text(it.mac(signed))}, env=master, t={it.milliseconds}"}


def mailgun(it: Delivery) -> Delivery:
    token = "token" * 10
    signature = it.mac(it.seconds, token).hex()
    signed = {"timestamp": it.seconds, "token": token, "signature": signature}
    body = json.dumps({"signature": signed, "event-data": {"event": "opened"}}).encode()
    return replace(it, body=body)


def teams(it: Delivery) -> dict[str, str]:
    digest = it.mac(it.body, key=base64.b64decode(it.secret))
    return {"Authorization": f"HMAC {text(digest)}"}


def plivo(it: Delivery) -> dict[str, str]:
    nonce = "12345"
    digest = text(it.mac(f"{it.url}?{sorted_form(it)}.{nonce}"))
    return {"X-Plivo-Signature-V3": f"{text(b'x')},{digest}", "X-Plivo-Signature-V3-Nonce": nonce}


def sendgrid(it: Delivery) -> dict[str, str]:
    signature = KEY.sign(it.seconds.encode() + it.body, ec.ECDSA(hashes.SHA256()))
    prefix = "X-Twilio-Email-Event-Webhook"
    return {f"{prefix}-Signature": text(signature), f"{prefix}-Timestamp": it.seconds}


def square(it: Delivery) -> dict[str, str]:
    return {"x-square-hmacsha256-signature": text(it.mac(it.url, it.body))}


def zendesk(it: Delivery) -> dict[str, str]:
    prefix = "X-Zendesk-Webhook-Signature"
    return {prefix: text(it.mac(it.iso, it.body)), f"{prefix}-Timestamp": it.iso}


PUBLIC_KEY = text(
    KEY.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
)
STANDARD_SECRET = f"whsec_{text(b'a key of svix')}"
META = "developers.facebook.com: Graph API, Webhooks, Validate Payloads"
SLACK = "api.slack.com: Verifying requests from Slack"

SIGNERS: dict[str, Signer] = {
    "aftership": Signer("aftership.com/docs: Webhook signature", based("aftership-hmac-sha256")),
    "airship": Signer(
        "support.airship.com: Implementing a Signature Hash and Validating an Open Channel Webhook",
        airship,
        timed=True,
    ),
    "alchemy": Signer("docs.alchemy.com: Notify API, Signature", hexed("X-Alchemy-Signature")),
    "autodesk": Signer(
        "aps.autodesk.com: Webhooks, Secret token",
        hexed("x-adsk-signature", "sha1hash=", "sha1"),
    ),
    "bitbucket": Signer(
        "support.atlassian.com: Manage webhooks, Secure webhooks",
        hexed("X-Hub-Signature", "sha256="),
    ),
    "bolt": Signer("help.bolt.com: Hook verification", based("X-Bolt-Hmac-Sha256")),
    "box": Signer("developer.box.com: Webhook signatures", box, timed=True),
    "brex": Signer(
        "developer.brex.com: Webhooks, Verify the signature",
        standard("Webhook"),
        secret=text(b"a key of brex"),
        timed=True,
    ),
    "buildkite": Signer(
        "buildkite.com/docs: Webhooks, Webhook signature",
        paired("X-Buildkite-Signature", "timestamp", "signature"),
        timed=True,
    ),
    "calendly": Signer(
        "developer.calendly.com: Webhook signatures",
        paired("Calendly-Webhook-Signature", "t", "v1"),
        timed=True,
    ),
    "castle": Signer("docs.castle.io: Webhooks, Verify", based("X-Castle-Signature")),
    "chargify": Signer(
        "developers.maxio.com: Webhooks, Signatures",
        hexed("X-Chargify-Webhook-Signature-Hmac-Sha-256"),
    ),
    "circleci": Signer(
        "circleci.com/docs: Webhooks, Validate webhooks", hexed("circleci-signature", "v1=")
    ),
    "clearbit": Signer(
        "clearbit.com/docs: Webhooks, Verification", hexed("X-Request-Signature", "sha1=", "sha1")
    ),
    "clerk": Signer(
        "clerk.com/docs: Sync data with webhooks, Verify",
        standard("svix"),
        secret=STANDARD_SECRET,
        timed=True,
    ),
    "coinbase": Signer(
        "docs.cloud.coinbase.com: Commerce, Webhooks, Securing", hexed("X-CC-Webhook-Signature")
    ),
    "contentful": Signer("contentful.com/developers: Request Verification", contentful, timed=True),
    "docusign": Signer(
        "developers.docusign.com: Connect, Validate with HMAC", based("X-DocuSign-Signature-2")
    ),
    "dropbox": Signer("dropbox.com/developers: Webhooks", hexed("X-Dropbox-Signature")),
    "facebook_graph_api": Signer(META, hexed("X-Hub-Signature-256", "sha256=")),
    "facebook_messenger": Signer(META, hexed("X-Hub-Signature-256", "sha256=")),
    "frameio": Signer(
        "developer.frame.io: Webhooks, Security",
        versioned("X-Frameio-Signature", "X-Frameio-Request-Timestamp", "v0"),
        timed=True,
    ),
    "github": Signer(
        "docs.github.com: Validating webhook deliveries", hexed("X-Hub-Signature-256", "sha256=")
    ),
    "gitlab": Signer(
        "docs.gitlab.com: Webhooks, Validate requests by using a secret token",
        lambda it: {"X-Gitlab-Token": it.secret},
        forged_body=False,
    ),
    "go1": Signer(
        "go1.com/developers: Webhook Signature Authentification",
        paired("Go1-Signature", "t", "v1"),
        timed=True,
    ),
    "graphcms": Signer("hygraph.com: Introducing Signed Webhooks", hygraph, timed=True),
    "heroku": Signer(
        "devcenter.heroku.com: App Webhooks, Securing", based("Heroku-Webhook-Hmac-SHA256")
    ),
    "hostedhooks": Signer(
        "docs.hostedhooks.com: Webhook Signatures",
        paired("HostedHooks-Signature", "t", "s"),
        timed=True,
    ),
    "hubspot": Signer(
        "developers.hubspot.com: Validating requests, v3 signature", hubspot, timed=True
    ),
    "instagram": Signer(META, hexed("X-Hub-Signature-256", "sha256=")),
    "intercom": Signer(
        "developers.intercom.com: Webhooks, Signed notifications",
        hexed("X-Hub-Signature", "sha1=", "sha1"),
    ),
    "jira": Signer(
        "developer.atlassian.com: Jira, Webhooks, Secure", hexed("X-Hub-Signature", "sha256=")
    ),
    "launch_darkly": Signer("launchdarkly.com/docs: Webhooks, Sign", hexed("X-LD-Signature")),
    "linear": Signer("linear.app/developers: Webhooks, Securing", hexed("Linear-Signature")),
    "mailchimp": Signer(
        "mailchimp.com/developer: Transactional, Authenticating webhook requests",
        of_url_and_form("X-Mandrill-Signature"),
        body=FORM,
    ),
    "mailgun": Signer("documentation.mailgun.com: Securing webhooks", mailgun, timed=True),
    "microsoft_teams": Signer(
        "learn.microsoft.com: Outgoing webhooks, Verify HMAC", teams, secret=text(b"a key of teams")
    ),
    "modern_treasury": Signer("docs.moderntreasury.com: Webhooks, Signature", hexed("X-Signature")),
    "mongodb": Signer(
        "mongodb.com/docs/atlas: Alerts, Webhook secret", based("X-MMS-Signature", hash="sha1")
    ),
    "mux": Signer(
        "mux.com/docs: Verify webhook signatures", paired("Mux-Signature", "t", "v1"), timed=True
    ),
    "orb": Signer(
        "docs.withorb.com: Webhooks, Verify",
        versioned("X-Orb-Signature", "X-Orb-Timestamp", "v1", iso=True),
        timed=True,
    ),
    "orbit": Signer("docs.orbit.love: Webhooks, Secret", hexed("X-Orbit-Signature", "sha256=")),
    "pagerduty": Signer(
        "developer.pagerduty.com: Verifying webhook signatures",
        lambda it: {
            "X-PagerDuty-Signature": f"v1={'0' * 64}, v1={it.mac(it.body).hex()}",
        },
    ),
    "pinwheel": Signer(
        "docs.pinwheelapi.com: Webhook Signature Verification",
        versioned("X-Pinwheel-Signature", "X-Timestamp", "v2"),
        timed=True,
    ),
    "plivo": Signer("plivo.com/docs: Signature validation, version 3", plivo, body=FORM),
    "pusher": Signer("pusher.com/docs: Webhooks, Security", hexed("X-Pusher-Signature")),
    "sendgrid": Signer(
        "docs.sendgrid.com: Event Webhook Security Features",
        sendgrid,
        secret=PUBLIC_KEY,
        timed=True,
    ),
    "sentry": Signer(
        "docs.sentry.io: Integration platform, Webhooks", hexed("Sentry-Hook-Signature")
    ),
    "shopify": Signer("shopify.dev: Verify a webhook", based("X-Shopify-Hmac-Sha256")),
    "signal_sciences": Signer(
        "docs.fastly.com: Signal Sciences, Generic webhooks", hexed("X-SigSci-Signature")
    ),
    "signalsciences": Signer(
        "docs.fastly.com: Signal Sciences, Generic webhooks", hexed("X-SigSci-Signature")
    ),
    "slack": Signer(
        SLACK, versioned("X-Slack-Signature", "X-Slack-Request-Timestamp", "v0"), timed=True
    ),
    "sonatype": Signer(
        "help.sonatype.com: Working with HMAC payloads",
        hexed("X-Nexus-Webhook-Signature", hash="sha1"),
    ),
    "sonatype_nexus": Signer(
        "help.sonatype.com: Working with HMAC payloads",
        hexed("X-Nexus-Webhook-Signature", hash="sha1"),
    ),
    "square": Signer("developer.squareup.com: Verify and validate an event", square),
    "stripe": Signer(
        "docs.stripe.com: Verify webhook signatures manually",
        paired("Stripe-Signature", "t", "v1"),
        timed=True,
    ),
    "svix": Signer(
        "docs.svix.com: Verifying webhooks manually",
        standard("svix"),
        secret=STANDARD_SECRET,
        timed=True,
    ),
    "terraform": Signer(
        "developer.hashicorp.com: Notification configurations, Authenticity",
        hexed("X-TFE-Notification-Signature", hash="sha512"),
    ),
    "tiktok": Signer(
        "developers.tiktok.com: Webhook verification",
        paired("TikTok-Signature", "t", "s"),
        timed=True,
    ),
    "trendmicro_conformity": Signer(
        "cloudone.trendmicro.com: Conformity, Webhook Communication",
        hexed("X-Conformity-Signature"),
    ),
    "twilio": Signer(
        "twilio.com/docs: Webhooks security", of_url_and_form("X-Twilio-Signature"), body=FORM
    ),
    "twitter": Signer(
        "developer.x.com: Securing webhooks", based("x-twitter-webhooks-signature", "sha256=")
    ),
    "typeform": Signer(
        "typeform.com/developers: Secure your webhooks", based("Typeform-Signature", "sha256=")
    ),
    "vmware": Signer(
        "docs.omnissa.com: Workspace ONE UEM, Event notifications",
        lambda it: {"Authorization": f"Basic {text(b'ada:lovelace')}"},
        secret="ada::lovelace",
        forged_body=False,
    ),
    "vmware_workspace": Signer(
        "docs.omnissa.com: Workspace ONE UEM, Event notifications",
        lambda it: {"Authorization": f"Basic {text(b'ada:lovelace')}"},
        secret="ada::lovelace",
        forged_body=False,
    ),
    "webex": Signer(
        "developer.webex.com: Webhooks, Handling requests", hexed("X-Spark-Signature", hash="sha1")
    ),
    "whatsapp": Signer(META, hexed("X-Hub-Signature-256", "sha256=")),
    "worldline": Signer(
        "docs.connect.worldline-solutions.com: Webhooks, Validate", based("X-GCS-Signature")
    ),
    "xero": Signer("developer.xero.com: Webhooks, Signature", based("x-xero-signature")),
    "zendesk": Signer("developer.zendesk.com: Verifying webhook authenticity", zendesk, timed=True),
    "zoom": Signer(
        "developers.zoom.us: Using webhooks, Verify",
        versioned("x-zm-signature", "x-zm-request-timestamp", "v0"),
        timed=True,
    ),
}


def now() -> datetime:
    return datetime.now(UTC)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
