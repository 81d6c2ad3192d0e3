"""The example policies in a checkout of the vendor's documentation, without their placeholders."""

from __future__ import annotations

import base64
import json
import re
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PHASES = {
    "on_tcp_connect",
    "on_http_request",
    "on_http_response",
    "on_event_stream_message",
    "inbound",
    "outbound",
}
"""The fields that make a mapping a policy."""

PHASE = re.compile(rf"^[\s{{\"'-]*({'|'.join(sorted(PHASES))})[\"']?\s*:", re.M)
FENCE = re.compile(r"^[ \t]*(`{3,})[ \t]*(\w*)[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.S | re.M)
FORMATS = {"", "yaml", "yml", "json"}
"""The languages of blocks that are read; what programs hold is on pages of its own as well."""

PLACEHOLDER = re.compile(r"<[^<>]+>|(?<!\$)\{[^{}]+\}|\$[A-Z]|^[A-Z]+(_[A-Z]+)+$")
SECRET = re.compile(r"secrets\.get\(\s*[\"'](.+?)[\"']\s*,\s*[\"'](.+?)[\"']\s*\)")
PEM = re.compile(r"-----BEGIN (CERTIFICATE|[A-Z ]*PRIVATE KEY)-----\s*\.\.\.")


def blocks(checkout: Path) -> Iterator[tuple[str, str]]:
    """The texts that hold a phase, with the page and the line where each begins."""
    for page in sorted(checkout.rglob("*.mdx")):
        content = page.read_text()
        for match in FENCE.finditer(content):
            text = textwrap.dedent(match[3].expandtabs(4))
            if match[2] in FORMATS and PHASE.search(text):
                line = content.count("\n", 0, match.start()) + 1
                yield f"{page.relative_to(checkout)}:{line}", text


def parse(text: str) -> list[Any]:
    """The documents in a text, or `yaml.YAMLError`."""
    try:
        return [json.loads(text)]
    except ValueError:
        return list(yaml.safe_load_all(text))


def policies(value: Any) -> Iterator[dict[str, Any]]:
    """The policies in a value: it is one, or holds them, as resources and configurations do."""
    match value:
        case dict() if PHASES & set(value):
            yield value
        case dict():
            for inner in value.values():
                yield from policies(inner)
        case list():
            for inner in value:
                yield from policies(inner)
        case str() if PHASE.search(value):
            for document in parse(value):
                # A text that is no mapping is the value itself again.
                if isinstance(document, dict):
                    yield from policies(document)


def examples(checkout: Path) -> tuple[dict[str, str], dict[str, str]]:
    """All different policies, as JSON, and all texts that cannot be read; each with its place."""
    documents: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    for place, text in blocks(checkout):
        try:
            found = [one for document in parse(text) for one in policies(document)]
        except yaml.YAMLError:
            unreadable.setdefault(text, place)
            continue
        for policy in found:
            documents.setdefault(json.dumps(policy, sort_keys=True, default=str), place)
    return documents, unreadable


def secrets(document: str) -> set[tuple[str, str]]:
    """The vaults and names of secrets that a policy reads."""
    return {(match[1], match[2]) for match in SECRET.finditer(document.replace('\\"', '"'))}


def self_signed() -> tuple[str, str]:
    """A certificate that may sign others, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "example.test")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
    shown = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    certificate = builder.sign(key, hashes.SHA256())
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), shown.decode()


class Placeholders:
    """Puts something of the right form in the place of what a reader is to write."""

    def __init__(self, ip_policy_id: str) -> None:
        self.certificate, self.key = self_signed()
        self.ip_policy_id = ip_policy_id
        key = ec.generate_private_key(ec.SECP256R1()).public_key()
        public = key.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self.secrets = {
            "sendgrid": base64.b64encode(public).decode(),
            "microsoft_teams": base64.b64encode(bytes(32)).decode(),
        } | dict.fromkeys(
            ["brex", "clerk", "svix"], "whsec_" + base64.b64encode(bytes(24)).decode()
        )
        """Secrets of providers that give them a form."""

    def fill(self, value: Any, field: str = "", provider: str = "") -> Any:
        """The same value without placeholders; `field` is where it stands."""
        match value:
            case dict():
                provider = str(value.get("provider", ""))
                return {name: self.fill(one, name, provider) for name, one in value.items()}
            case list():
                return [self.fill(one, field, provider) for one in value]
            case str():
                return self.text(value, field, provider)
        return value

    def text(self, value: str, field: str, provider: str) -> str:
        if pem := PEM.match(value):
            return self.certificate if pem[1] == "CERTIFICATE" else self.key
        if field == "ip_policies":
            return self.ip_policy_id
        if field in ("allow", "deny") and " " in value:
            return "192.0.2.0/24"
        if not PLACEHOLDER.search(value):
            return value
        match field:
            case "allow" | "deny":
                return "192.0.2.0/24"
            case "issuer_url" | "additional_jkus" if not value.startswith("https://"):
                return "https://issuer.example.com"
            case "url" if "${" not in value:
                scheme = value.partition("://")[0] if "://" in value else "https"
                return f"{scheme}://service.internal:8443"
            case "secret":
                return self.secrets.get(provider, value)
        return value
