"""Counts the example policies of the vendor's documentation that a service accepts.

    python tests/peers/policy_documents.py CHECKOUT

CHECKOUT is the vendor's public repository of its documentation. Each different policy in it is put
on an endpoint of an agent, and on one of the service if it reads secrets. The service has what an
operator can give it: applications for logins, files of addresses, secrets. Prints each policy that
is refused, then the table for `docs/guides/move.md`.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

import ginnel
from policy_examples import Placeholders, examples, secrets

sys.path.append(str(Path(__file__).parents[1] / "python"))
import addresses
import mmdb

PROVIDERS = [
    "amazon",
    "facebook",
    "github",
    "gitlab",
    "google",
    "linkedin",
    "microsoft",
    "twitch",
]
HOST = "examples.example.test"

CALL = re.compile(r" \((502 103|400 ERR_NGROK_\d+), POST .*")
"""The end of a message, which says how the call was made."""

SHAPE = (
    "must be a list of rules|must be an object|must be a list |unknown field|must be a text"
    "|oidc is called openid-connect"
)
REASONS: list[tuple[str, str, str]] = [
    ("rule set that is not part", "the rule set of OWASP", "it is not part of the service"),
    ("saml is not supported", "a login with `saml`", "`saml` is not supported yet"),
    ("ai-gateway", "the AI gateway", "it is not part of the service"),
    (r"conn\.k8s", "what Kubernetes knows of a pod, `conn.k8s`", "there is no operator"),
    (
        "on_event_stream_message",
        "`sse-find-replace`",
        "events of a stream pass as they are: there is no phase for them",
    ),
    (
        r"certificate_authorities\[0\]: must be PEM",
        "certificate authorities by identifier or from a vault in `terminate-tls`",
        "they are given as PEM",
    ),
    (
        "sns signs with a certificate",
        "`verify-webhook` for Amazon SNS",
        "its certificate would have to be fetched for each delivery",
    ),
    (
        "url must be (https?|tcp) or",
        "HTTP to an endpoint of bytes, or the other way round",
        "`forward-internal` forwards what it gets",
    ),
    (
        SHAPE,
        "fields where no reference has them",
        "a phase that is no list of rules, an action in the place of a rule, other names",
    ),
    (
        "invalid expression|unknown variable|no function",
        "expressions that are none",
        "`includes`, `${…}` inside of one, names and parentheses that are wrong there",
    ),
    (
        "ends the phase",
        "rules or actions behind one that ends the phase",
        "they would never run",
    ),
]
"""What a refusal has in it, what the policy wants, and why not; the first one counts."""


class Acceptance:
    """A service and an agent that policies are given to."""

    def __init__(self, folder: Path) -> None:
        categories = folder / "categories.csv"
        categories.write_text("192.0.2.0/24, com.example\n")
        country = {"country": {"iso_code": "XX"}}
        system = {"autonomous_system_number": 64496}
        application = {"client_id": "example", "client_secret": "nobody needs to know it"}
        settings: Any = {
            "oauth": dict.fromkeys(PROVIDERS, application),
            "geo_database": str(mmdb.write(folder / "geo.mmdb", {"192.0.2.0/24": country})),
            "asn_database": str(mmdb.write(folder / "asn.mmdb", {"192.0.2.0/24": system})),
            "address_categories": str(categories),
        }
        self.service = ginnel.Service(
            base_domain="tunnels.example.test",
            https_port=addresses.free_port(),
            settings=settings,
        )
        self.remote = self.service.client()
        self.agent = ginnel.Agent(self.service)
        self.local = self.agent.client()
        self.vaults: dict[str, str] = {}
        self.known_secrets: set[tuple[str, str]] = set()

    def __enter__(self) -> Acceptance:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.local.close()
        self.remote.close()
        self.agent.stop()
        self.service.stop()

    def ip_policy(self) -> str:
        made: str = self.remote.ip_policies.create().id
        return made

    def refusal(self, document: str) -> str | None:
        """Why no endpoint takes this policy: of the kind of endpoint that it is nearest to."""
        if reads := secrets(document):
            return self.refusal_of_service(document, reads)
        refusals = []
        for kind in ("http", "tls", "tcp"):
            refused = self.refusal_of_agent(document, kind)
            if refused is None:
                return None
            refusals.append(refused)
        return refusals[0 if '"on_tcp' not in document or '"on_http' in document else 1]

    def refusal_of_agent(self, document: str, kind: str) -> str | None:
        schemes = ["https"] if kind == "http" else None
        try:
            self.local.tunnels.start(
                addr=8000, proto=kind, schemes=schemes, name="example", traffic_policy=document
            )
        except ginnel.GinnelError as error:
            return str(error)
        self.local.tunnels.stop("example")
        return None

    def refusal_of_service(self, document: str, reads: set[tuple[str, str]]) -> str | None:
        for vault, name in reads - self.known_secrets:
            if vault not in self.vaults:
                self.vaults[vault] = self.remote.vaults.create(name=vault).id
            self.remote.vault_secrets.create(name=name, value="x" * 16, vault_id=self.vaults[vault])
            self.known_secrets.add((vault, name))
        try:
            made = self.remote.endpoints.create(url=f"https://{HOST}", traffic_policy=document)
        except ginnel.GinnelError as error:
            return str(error)
        self.remote.endpoints.delete(made.id)
        return None


def reason(refusal: str, document: str) -> tuple[str, str]:
    about = f"{refusal}\n{document}"
    for sign, wants, why in REASONS:
        if re.search(sign, refusal if sign == SHAPE else about):
            return wants, why
    raise LookupError(f"no reason is known for: {refusal}")


def main() -> None:
    documents, unreadable = examples(Path(sys.argv[1]))
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder, Acceptance(Path(folder)) as acceptance:
        placeholders = Placeholders(acceptance.ip_policy())
        for document, place in documents.items():
            filled = json.dumps(placeholders.fill(json.loads(document)))
            if refusal := acceptance.refusal(filled):
                found = reason(refusal, filled)
                counts[found] += 1
                print(f"{place}: {found[0]}\n    {CALL.sub('', refusal)}")
    print(f"\nNo YAML: {len(unreadable)}", *unreadable.values(), sep="\n    ")
    print(f"\n{len(documents)} documents, {len(documents) - counts.total()} accepted\n")
    print("| Documents | What they want | Why not |\n| --- | --- | --- |")
    for (wants, why), count in counts.most_common():
        print(f"| {count} | {wants} | {why} |")


if __name__ == "__main__":
    main()
