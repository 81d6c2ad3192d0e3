"""The dashboard and the alert rules of `deploy/` ask for metrics that are there."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
import trustme
import yaml  # type: ignore[import-untyped]
from prometheus_client.parser import text_string_to_metric_families

import ginnel
from ginnel.service_settings import ServiceSettings
from processes import Upstream, status, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "ginnel.json").read_text())
RULES = yaml.safe_load((DEPLOY / "prometheus" / "ginnel.rules.yml").read_text())
METRIC = re.compile(r"\b((?:ginnel|process)_\w+)(\{[^}]*\})?")
LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
TEMPLATE = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")
# No host needs a certificate, so nobody is asked for one.
ACME: ServiceSettings = {
    "acme": {"directory": "https://127.0.0.1:1/directory", "agree_to_terms": True},
}
OF_SCRAPES = {"instance", "job"}
"""Labels that Prometheus itself adds."""


def queries() -> Iterator[tuple[str, str]]:
    """What is asked for, and by whom."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["definition"]
    for group in RULES["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


def texts() -> Iterator[tuple[str, str, str]]:
    """The texts that name labels of a query, with the query and who asks."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"], target.get("legendFormat", "")
    for group in RULES["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"], " ".join(rule["annotations"].values())


def labels_of(query: str, families: dict[str, set[str]]) -> set[str]:
    """The labels of all metrics of a query that had a sample."""
    labels = (families.get(name, set()) for name, _ in METRIC.findall(query))
    return OF_SCRAPES.union(*labels)


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The names of all samples of a service and an agent that were busy, with their labels."""
    found: dict[str, set[str]] = {}
    folder = tmp_path_factory.mktemp("certificate")
    certificate = folder / "chain.pem", folder / "key.pem"
    issued = trustme.CA().issue_cert("app.test")
    certificate[0].write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
    certificate[1].write_bytes(issued.private_key_pem.bytes())
    at = "127.0.0.1:0"
    with (
        Upstream() as upstream,
        ginnel.Service(admin_addr=at, settings=ACME, certificate=certificate) as service,
        ginnel.Agent(service, admin_addr="127.0.0.1:0") as agent,
        agent.client() as local,
        service.client() as remote,
    ):
        tunnel = local.tunnels.start(name="web", addr=upstream.port, proto="http")
        assert status(tunnel.public_url) == 200
        assert remote.api_keys.list().first()
        bytes_only = local.tunnels.start(name="bytes", addr=upstream.port, proto="tcp")
        host, _, port = bytes_only.public_url.removeprefix("tcp://").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as visitor:
            visitor.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert visitor.recv(65536).startswith(b"HTTP/1.1 200 ")
        host, _, port = tunnel.public_url.removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as visitor:
            visitor.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert visitor.recv(65536).startswith(b"HTTP/1.1 400 ")

        def scrape() -> None:
            for url in (service.admin_url, agent.admin_url):
                with urlopen(f"{url}/metrics", timeout=30) as answer:
                    for family in text_string_to_metric_families(answer.read().decode()):
                        found.setdefault(family.name, set())
                        for sample in family.samples:
                            found.setdefault(sample.name, set()).update(sample.labels)

        def has_traffic() -> bool:
            scrape()
            counters = ("ginnel_http_requests_total", "ginnel_stream_connections_total")
            return all(found.get(name) for name in counters)

        wait_until(has_traffic, "a request and a connection that are counted")
    return found


@pytest.mark.parametrize(("asker", "query"), list(queries()))
def test_each_query_asks_for_what_is_there(
    asker: str, query: str, families: dict[str, set[str]]
) -> None:
    asked = METRIC.findall(query)
    assert asked or asker == "GinnelDown", "it asks for no metric"
    for name, selector in asked:
        base = name.removesuffix("_total")
        assert name in families or base in families, f"{asker}: {name}"
        known = families.get(name, set())
        for label in LABEL.findall(selector):
            if known:
                assert label in known | OF_SCRAPES, f"{asker}: {name} has no {label}"
    for labels in GROUPING.findall(query):
        named = {label.strip() for label in labels.split(",") if label.strip()}
        assert named <= labels_of(query, families), f"{asker}: {labels}"


@pytest.mark.parametrize(("asker", "query", "text"), list(texts()))
def test_each_text_names_labels_that_its_query_leaves(
    asker: str, query: str, text: str, families: dict[str, set[str]]
) -> None:
    left = {label.strip() for labels in GROUPING.findall(query) for label in labels.split(",")}
    for label in TEMPLATE.findall(text):
        assert label in (left or labels_of(query, families)), f"{asker}: {label}"


def test_panels_have_places_and_names_of_their_own() -> None:
    panels: list[dict[str, Any]] = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells), "panels lie on one another"
    assert max(x for x, _ in cells) < 24
    kinds = {"row", "stat", "timeseries"}
    assert {panel["type"] for panel in panels} <= kinds
    for panel in panels:
        assert panel["type"] == "row" or panel["datasource"]["uid"] == "${datasource}"


def test_alerts_say_what_to_do() -> None:
    for group in RULES["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in {"page", "ticket"}
            assert set(rule["annotations"]) == {"summary", "description"}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian: prometheus)")
def test_promtool_takes_the_files() -> None:
    for arguments in (
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "ginnel.rules.yml"],
        ["test", "rules", "ginnel.test.yml"],
    ):
        done = subprocess.run(
            ["promtool", *arguments],
            cwd=DEPLOY / "prometheus",
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
