"""Results as Arrow tables."""

from __future__ import annotations

import dataclasses
import importlib
import json
import pkgutil
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

import ginnel.local
import ginnel.remote
from ginnel._core.record import Record
from ginnel._core.results import Results
from ginnel._export.arrow import table
from ginnel.local.requests import CapturedRequest
from ginnel.local.tunnels import AgentTunnel, ConnectionMetrics
from ginnel.remote.api_keys import ApiKey
from ginnel.remote.edges.https import HttpsEdge
from ginnel.remote.edges.modules import EndpointAction
from ginnel.remote.tunnel_sessions import TunnelSession

pyarrow = pytest.importorskip("pyarrow")


def types(table: Any) -> dict[str, str]:
    return {field.name: str(field.type) for field in table.schema}


async def test_a_list_becomes_an_arrow_table(client: Any) -> None:
    made = await client.api_keys.create(description="ci")

    arrow = await client.api_keys.list().to_arrow(limit=1)

    assert arrow.column("id").to_pylist() == [made.id]
    assert types(arrow)["created_at"] == "timestamp[us, tz=UTC]"
    assert arrow.column("created_at").to_pylist() == [made.created_at]
    assert "token" not in arrow.column_names
    assert "extra" not in arrow.column_names
    assert Results([made]).to_arrow().column("description").to_pylist() == ["ci"]


async def test_a_list_without_items_has_all_columns(client: Any) -> None:
    arrow = await client.ip_policies.list().to_arrow()

    assert arrow.num_rows == 0
    assert types(arrow)["created_at"] == "timestamp[us, tz=UTC]"
    assert Results().to_arrow().num_columns == 0


def test_times_are_the_same_instants_whatever_their_zone() -> None:
    wire = {"id": "ak_1", "uri": "", "created_at": "2026-01-02T03:04:05.678901+02:00"}

    arrow: Any = Results([ApiKey.from_dict(wire)]).to_arrow()

    told = datetime(2026, 1, 2, 1, 4, 5, 678901, UTC)
    assert arrow.column("created_at").to_pylist() == [told]


def test_what_is_nested_stays_nested() -> None:
    edge = HttpsEdge.from_dict(
        {
            "id": "edghts_1",
            "uri": "",
            "hostports": ["a.test:443", "b.test:443"],
            "mutual_tls": {"certificate_authorities": [{"id": "ca_1", "uri": "u"}]},
        }
    )
    absent = HttpsEdge.from_dict({"id": "edghts_2", "uri": ""})

    arrow: Any = Results([edge, absent]).to_arrow()

    assert types(arrow)["hostports"].startswith("list<")
    assert types(arrow)["mutual_tls"].startswith("struct<")
    assert arrow.column("hostports").to_pylist() == [["a.test:443", "b.test:443"], None]
    inner, nothing = arrow.column("mutual_tls").to_pylist()
    assert inner["certificate_authorities"] == [{"id": "ca_1", "uri": "u"}]
    assert nothing is None


def test_captured_requests_keep_bytes_headers_and_durations() -> None:
    message = {"proto": "HTTP/1.1", "headers": {"A": ["1", "2"]}, "raw": "YWJj"}
    wire = {
        "uri": "/api/requests/http/1",
        "id": "1",
        "tunnel_name": "web",
        "remote_addr": "192.0.2.1",
        "start": "2026-01-02T03:04:05Z",
        "duration": 5_000_000,
        "request": {**message, "method": "GET", "uri": "/"},
    }

    arrow: Any = Results([CapturedRequest.from_dict(wire)]).to_arrow()

    assert types(arrow)["duration"] == "int64"
    assert types(arrow)["start"] == "timestamp[us, tz=UTC]"
    (request,) = arrow.column("request").to_pylist()
    assert request["raw"] == b"abc"
    assert request["headers"] == [("A", ["1", "2"])]
    assert arrow.column("response").to_pylist() == [None]


@pytest.mark.parametrize("kind", [ApiKey, HttpsEdge, TunnelSession, CapturedRequest, AgentTunnel])
def test_every_column_can_be_stored_as_parquet(kind: Any, tmp_path: Any) -> None:
    from pyarrow import parquet

    parquet.write_table(table(kind, []), tmp_path / "list.parquet")

    assert parquet.read_table(tmp_path / "list.parquet").schema.equals(table(kind, []).schema)


def test_a_value_that_does_not_fit_is_named() -> None:
    wire = {"count": 2**70, "gauge": 0} | dict.fromkeys(
        ("rate1", "rate5", "rate15", "p50", "p90", "p95", "p99"), 0.0
    )
    figures = ConnectionMetrics(**wire)  # type: ignore[arg-type]

    with pytest.raises(ValueError, match=r"^ConnectionMetrics\.count: a value is not int64"):
        Results([figures]).to_arrow()


def test_without_pyarrow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(ImportError, match=r"pip install 'ginnel\[arrow\]'"):
        Results([ApiKey.from_dict({"id": "ak_1", "uri": ""})]).to_arrow()


def test_every_result_of_both_apis_has_a_schema() -> None:
    for package in (ginnel.remote, ginnel.local):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)

    kinds = [kind for kind in below(Record) if dataclasses.is_dataclass(kind)]

    assert len(kinds) > 40
    for kind in kinds:
        assert table(kind, []).num_columns > 0, kind


def below(kind: type[Record]) -> set[type[Record]]:
    return {kind}.union(*(below(derived) for derived in kind.__subclasses__()))


def test_what_has_no_fixed_form_is_json() -> None:
    action = EndpointAction.from_dict({"type": "deny", "config": {"status_code": 403}})

    arrow: Any = Results([action]).to_arrow()

    assert types(arrow)["config"] == "string"
    assert json.loads(arrow.column("config").to_pylist()[0]) == {"status_code": 403}
