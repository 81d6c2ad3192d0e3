"""What a service and an agent show to whoever watches them: health, readiness, metrics."""

from __future__ import annotations

import datetime
import json
import shutil
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

import ginnel
from processes import Command, Upstream, status, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
FORMATS: dict[str, Callable[[str], Iterable[Any]]] = {
    "text/plain": text_string_to_metric_families,
    OPENMETRICS: openmetrics.text_string_to_metric_families,
}
Samples = dict[tuple[str, frozenset[tuple[str, str]]], Any]


def get(url: str, accept: str = "*/*") -> tuple[int, str, str]:
    """Status, content type and text of a response."""
    request = urllib.request.Request(url, headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.headers["Content-Type"], refused.read().decode()


class Watched:
    """The listener for monitoring of a command."""

    def __init__(self, address: str) -> None:
        self.url = f"http://{address}"

    def ready(self, query: str = "") -> tuple[int, list[str]]:
        code, _, text = get(f"{self.url}/readyz{query}")
        return code, json.loads(text)["reasons"]

    def scrape(self, accept: str = OPENMETRICS) -> Samples:
        """Every sample of a scrape, as a parser of the Prometheus project reads it."""
        code, content_type, text = get(f"{self.url}/metrics", accept)
        assert (code, content_type.partition(";")[0]) == (200, accept.partition(";")[0])
        return {
            (sample.name, frozenset(sample.labels.items())): sample
            for family in FORMATS[accept](text)
            for sample in family.samples
        }

    def value(self, name: str, accept: str = OPENMETRICS, /, **labels: str) -> float:
        """The value of a series; 0 where there is none."""
        sample = self.scrape(accept).get((name, frozenset(labels.items())))
        return 0.0 if sample is None else float(sample.value)


def serve(*arguments: str) -> Command:
    return Command("serve", "--admin-addr", "127.0.0.1:0", *arguments)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


def edge_to(remote: ginnel.RemoteClient, port: int, **modules: Any) -> Any:
    """An edge for app.test, on plain HTTP, that leads to a local port."""
    backend = remote.backends.static.create(address=f"127.0.0.1:{port}")
    edge = remote.edges.https.create(hostports=["app.test:80"])
    remote.edges.https.routes.create(
        edge.id,
        match_type="path_prefix",
        match="/",
        backend={"backend_id": backend.id},
        **modules,
    )
    return edge


def visit(url: str, path: str = "/", **headers: str) -> tuple[int, dict[str, str]]:
    request = urllib.request.Request(f"{url}{path}", headers={"Host": "app.test", **headers})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()
            return answer.status, {k.lower(): v for k, v in answer.headers.items()}
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, {k.lower(): v for k, v in refused.headers.items()}


def test_metrics_say_when_the_configured_certificate_ends(tmp_path: Path) -> None:
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    end = datetime.datetime(2033, 5, 18, 3, 33, 20, tzinfo=datetime.UTC)
    issued = trustme.CA().issue_cert("app.test", not_after=end)
    chain.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    with serve("--certificate", str(chain), "--certificate-key", str(key)) as service:
        watched = Watched(service.line()["admin_addr"])
        name = "ginnel_certificate_end_timestamp_seconds"
        assert watched.value(name, source="configured") == 2_000_000_000
        assert (name, frozenset({("source", "acme")})) not in watched.scrape()


@pytest.mark.parametrize("accept", FORMATS)
def test_metrics_count_what_traffic_did(accept: str, upstream: Upstream) -> None:
    with serve() as service:
        told = service.line()
        watched = Watched(told["admin_addr"])
        with ginnel.RemoteClient(told["api_key"], base_url=told["url"]) as remote:
            deny = {
                "inbound": [
                    {
                        "expressions": ["req.url.path == '/closed'"],
                        "actions": [{"type": "deny", "config": {"status_code": 451}}],
                    }
                ]
            }
            edge = edge_to(remote, upstream.port, policy=deny)
            for _ in range(3):
                assert visit(told["http_url"])[0] == 200
            assert visit(told["http_url"], "/closed")[0] == 451
            request = urllib.request.Request(told["http_url"], headers={"Host": "nobody.test"})
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(request, timeout=30)

        labels = {"edge": edge.id, "proto": "http"}
        requests = "ginnel_http_requests_total"
        wait_until(lambda: watched.value(requests, accept, **labels, code="2xx") == 3, "requests")
        samples = watched.scrape(accept)

        def value(name: str, **labels: str) -> float:
            return float(samples[name, frozenset(labels.items())].value)

        assert value(requests, **labels, code="4xx") == 1
        assert value(requests, edge="none", proto="http", code="4xx") == 1
        duration = "ginnel_http_request_duration_seconds"
        assert value(f"{duration}_count", edge=edge.id) == 4
        assert value(f"{duration}_bucket", edge=edge.id, le="+Inf") == 4
        assert 0 < value(f"{duration}_sum", edge=edge.id) < 60
        assert value("ginnel_policy_decisions_total", action="deny") == 1
        assert value("ginnel_policy_decisions_total", action="redirect") == 0
        assert value("ginnel_visitor_rejections_total", phase="select_host") == 1
        created = {"operation": "edges.https.create", "code": "201"}
        assert value("ginnel_api_operations_total", **created) == 1
        assert value("ginnel_connections_accepted_total", of="visitors") == 5
        assert value("ginnel_visitor_received_bytes_total", proto="http") > 5 * len(
            "GET / HTTP/1.1"
        )
        assert value("ginnel_visitor_sent_bytes_total", proto="http") > 5 * len("HTTP/1.1 200 OK")
        assert value("ginnel_store_commit_changes_sum") >= 3
        assert value("ginnel_store_commit_duration_seconds_count") >= 3
        assert value("ginnel_build_info", version=ginnel.__version__) == 1
        assert value("process_start_time_seconds") > 1_600_000_000
        assert value("process_resident_memory_bytes") > 1 << 20
        assert value("process_open_fds") > 3


def test_requests_on_the_fast_path_and_to_tunnels_count_too(
    upstream: Upstream, tmp_path: Path
) -> None:
    with serve("--path", str(tmp_path / "g.db")) as service:
        told = service.line()
        watched = Watched(told["admin_addr"])
        with ginnel.RemoteClient(told["api_key"], base_url=told["url"]) as remote:
            edge = edge_to(remote, upstream.port)
        assert visit(told["http_url"])[0] == 200
        labels = {"edge": edge.id, "proto": "http", "code": "2xx"}
        wait_until(
            lambda: watched.value("ginnel_http_requests_total", **labels) == 1, "an edge's request"
        )
        environment = {"GINNEL_AUTHTOKEN": told["authtoken"]}
        arguments = ("--server-addr", told["agent_addr"], "--ca", told["ca_path"])
        with Command(
            "http",
            str(upstream.port),
            *arguments,
            *("--web-addr", "false", "--admin-addr", "127.0.0.1:0", "--name", "web"),
            **environment,
        ) as agent:
            admin = agent.event("monitoring")["admin_addr"]
            url = agent.event("tunnel")["public_url"]
            for _ in range(2):
                assert status(url) == 200
            labels = {"edge": "endpoint", "proto": "http", "code": "2xx"}
            wait_until(
                lambda: watched.value("ginnel_http_requests_total", **labels) == 2, "visitors"
            )
            assert watched.value("ginnel_sessions") == 1
            assert watched.value("ginnel_sessions_started_total") == 1
            assert watched.value("ginnel_session_reconnects_total") == 0
            assert watched.value("ginnel_tunnels") == 1
            assert watched.value("ginnel_streams_opened_total") >= 1
            its = Watched(admin)
            assert its.ready() == (200, [])
            assert its.value("ginnel_agent_online") == 1
            assert its.value("ginnel_agent_tunnel_requests_total", tunnel="web") == 2
            labels = {"kind": "https", "code": "2xx"}
            wait_until(lambda: its.value("ginnel_agent_requests_total", **labels) == 2, "its class")
            assert its.value("ginnel_capture_requests") == 2
            assert its.value("ginnel_capture_bytes") > 0
            assert its.value("ginnel_capture_evictions_total") == 0
            service.process.send_signal(signal.SIGTERM)
            assert service.ended()[0] == 0
            wait_until(lambda: its.ready()[0] == 503, "an agent that has lost its session")
            assert its.ready() == (503, ["session: reconnecting"])
            assert its.value("ginnel_agent_online") == 0


def test_an_operation_is_an_exemplar_by_its_id() -> None:
    with serve() as service:
        told = service.line()
        remote = ginnel.RemoteClient(told["api_key"], base_url=told["url"])
        with remote, pytest.raises(ginnel.NotFoundError) as refused:
            remote.ip_policies.get("ipp_" + "2" * 27)
        samples = Watched(told["admin_addr"]).scrape()

    exemplars = [
        sample.exemplar.labels
        for (name, labels), sample in samples.items()
        if name == "ginnel_api_operation_duration_seconds_bucket"
        and ("operation", "ip_policies.get") in labels
        and sample.exemplar
    ]
    assert exemplars == [{"request_id": refused.value.operation_id}]


def test_readiness_of_a_service_from_its_start_to_its_end(tmp_path: Path) -> None:
    with serve("--path", str(tmp_path / "g.db"), "--drain-delay", "10") as service:
        told = service.line()
        watched = Watched(told["admin_addr"])
        assert get(f"{watched.url}/healthz")[0] == 200
        assert watched.ready() == (200, [])
        assert watched.ready("?for=writes") == (200, [])
        assert get(f"{watched.url}/readyz?for=reads")[0] == 400
        assert get(f"{watched.url}/nothing")[0] == 404

        service.process.send_signal(signal.SIGTERM)

        wait_until(lambda: watched.ready()[0] == 503, "a service that is not ready")
        assert watched.ready() == (503, ["draining: the service is stopping"])
        assert get(f"{watched.url}/healthz")[0] == 200
        assert status(told["http_url"]) == 404, "whoever comes meanwhile is still served"
        assert service.ended()[0] == 0


def test_a_service_whose_file_is_gone_takes_traffic_and_no_changes(tmp_path: Path) -> None:
    path = tmp_path / "g.db"
    with serve("--path", str(path)) as service:
        told = service.line()
        watched = Watched(told["admin_addr"])
        assert watched.value("ginnel_store_writable") == 1
        path.rename(tmp_path / "moved.db")
        remote = ginnel.RemoteClient(told["api_key"], base_url=told["url"], max_retries=0)
        with remote, pytest.raises(ginnel.ServerError):
            remote.ip_policies.create(description="x")

        assert watched.ready() == (200, [])
        code, reasons = watched.ready("?for=writes")
        assert code == 503
        assert reasons[0].startswith("store: changes are not stored: ")
        assert watched.value("ginnel_store_writable") == 0


def test_no_tunnel_leads_to_the_listener() -> None:
    with serve() as service:
        told = service.line()
        port = int(told["admin_addr"].rpartition(":")[2])
        with ginnel.RemoteClient(told["api_key"], base_url=told["url"]) as remote:
            edge_to(remote, port)
        assert visit(told["http_url"], "/metrics")[0] == 502


def test_an_address_in_use_ends_the_command(upstream: Upstream) -> None:
    address = f"127.0.0.1:{upstream.port}"
    agent = {"GINNEL_SERVER_ADDR": "127.0.0.1:1", "GINNEL_AUTHTOKEN": "x", "HOME": "/nowhere"}
    for command, environment in (("serve", {}), ("agent", agent)):
        with Command(command, "--admin-addr", address, **environment) as ended:
            code, complaint = ended.ended()
        assert code == 3
        assert complaint.startswith(f"ginnel: admin_addr: cannot listen on {address}: ")


def test_a_backup_that_failed_is_seen_and_is_no_reason_to_send_nobody(tmp_path: Path) -> None:
    (folder := tmp_path / "backups").mkdir()
    backup: Any = {"to": folder, "every": 1}
    with ginnel.Service(admin_addr="127.0.0.1:0", settings={"backup": backup}) as service:
        url = f"{service.admin_url}/readyz"
        assert json.loads(get(f"{url}?for=backups")[2]) == {"status": "ready", "reasons": []}

        wait_until(lambda: list(folder.glob("*.db")), "a backup")
        shutil.rmtree(folder)
        wait_until(lambda: get(f"{url}?for=backups")[0] == 503, "a failure")
        code, _, text = get(url)
        said = json.loads(text)
        assert (code, said["status"], len(said["reasons"])) == (200, "ready", 1)
        assert said["reasons"][0].startswith("backups: the last one failed: ")
        assert get(f"{url}?for=writes")[0] == 200

        folder.mkdir()
        wait_until(lambda: get(f"{url}?for=backups")[0] == 200, "a backup again")
        assert json.loads(get(url)[2])["reasons"] == []
