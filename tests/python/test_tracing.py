"""Spans of OpenTelemetry, with its real SDK: one per call, and on the wire as `traceparent`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

import ginnel
from conftest import Face
from server import Server, answer

pytest.importorskip("opentelemetry.sdk")
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode

from ginnel.tracing import traced

KEY = {"id": "ak_1", "uri": "u", "description": "private words"}
TOKEN = "ak_2abcdefghijklmnopqrstuvwxyz0_secret"


class Traces:
    """A provider that keeps its spans."""

    def __init__(self) -> None:
        self.provider = TracerProvider()
        self.kept = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self.kept))
        self.tracer = self.provider.get_tracer("test")

    def spans(self) -> list[ReadableSpan]:
        return list(self.kept.get_finished_spans())


@pytest.fixture
def traces() -> Traces:
    return Traces()


@pytest.fixture
def make_traced(make_client: Any, traces: Traces) -> Any:
    """Makes traced clients of each kind."""

    def make(*arguments: Any, **options: Any) -> Any:
        made = make_client(*arguments, **options)
        if isinstance(made, Face):
            target: Any = made._target
            return Face(traced(target, traces.provider))
        return traced(made, traces.provider)

    return make


def about(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def context(span: ReadableSpan) -> Any:
    assert span.context is not None
    return span.context


async def test_a_call_is_a_span_below_the_active_one(make_traced: Any, traces: Traces) -> None:
    with Server([answer(200, KEY)]) as server:
        client = make_traced(TOKEN, base_url=server.url)
        with traces.tracer.start_as_current_span("job"):
            assert (await client.api_keys.get("ak_1")).id == "ak_1"

    call, job = traces.spans()
    assert (call.name, call.kind) == ("GET /api_keys/{id}", SpanKind.CLIENT)
    assert call.parent is not None
    assert call.parent.span_id == context(job).span_id
    assert about(call) == {
        "http.request.method": "GET",
        "http.response.status_code": 200,
        "server.address": "127.0.0.1",
        "server.port": int(server.url.rpartition(":")[2]),
        "url.template": "/api_keys/{id}",
    }
    assert call.status.status_code is StatusCode.UNSET
    [request] = server.requests
    ours = context(call)
    expected = f"00-{ours.trace_id:032x}-{ours.span_id:016x}-{ours.trace_flags:02x}"
    assert request.headers["traceparent"] == expected
    assert ours.trace_flags.sampled
    text = call.to_json()
    for hidden in (TOKEN, "secret", "private words", "ak_1"):
        assert hidden not in text


async def test_retries_are_events_of_one_span(make_traced: Any, traces: Traces) -> None:
    again = {"retry_after": 0}
    with Server([answer(503, {}, **again), answer(429, {}, **again), answer(200, KEY)]) as server:
        await make_traced("k", base_url=server.url).api_keys.get("ak_1")

    [call] = traces.spans()
    told = [(event.name, dict(event.attributes or {})) for event in call.events]
    assert [(name, some["http.response.status_code"]) for name, some in told] == [
        ("retry", 503),
        ("retry", 429),
    ]
    assert about(call)["http.request.resend_count"] == 2
    assert about(call)["http.response.status_code"] == 200
    assert len({request.headers["traceparent"] for request in server.requests}) == 1


async def test_a_failure_marks_its_span(make_traced: Any, traces: Traces) -> None:
    with Server([answer(404, {"msg": "no ak_1"}), None]) as server:
        client = make_traced("k", base_url=server.url, max_retries=0)
        with pytest.raises(ginnel.NotFoundError):
            await client.api_keys.get("ak_1")
        with pytest.raises(ginnel.APIConnectionError):
            await client.api_keys.create(description="d")
        with pytest.raises(ginnel.ValidationError):
            await client.api_keys.create(description="é" * 128)

    missed, broken, refused = traces.spans()
    assert about(missed)["error.type"] == "404"
    assert about(broken)["error.type"] == "APIConnectionError"
    assert about(refused)["error.type"] == "ValidationError"
    assert {span.status.status_code for span in traces.spans()} == {StatusCode.ERROR}
    assert "ak_1" not in missed.to_json()


async def test_pages_and_free_requests_are_spans_too(make_traced: Any, traces: Traces) -> None:
    with ginnel.Service() as service:
        client = make_traced(service.api_key, base_url=service.url)
        for _ in range(3):
            await client.ip_policies.create()
        traces.kept.clear()

        assert len(await client.ip_policies.list(limit=2).to_list()) == 3
        await client.request("get", "/api_keys", query={"limit": 1})

    names = [span.name for span in traces.spans()]
    assert names == ["GET /ip_policies", "GET /ip_policies", "GET"]


async def test_hooks_still_hear_of_it(make_traced: Any, traces: Traces) -> None:
    told: list[str] = []
    hooks = {
        f"on_{kind}": lambda event, kind=kind: told.append(kind)
        for kind in ("request", "response", "retry")
    }
    with Server([answer(503, {}, retry_after=0), answer(200, KEY)]) as server:
        await make_traced("k", base_url=server.url, **hooks).api_keys.get("ak_1")

    assert told == ["request", "response", "retry", "request", "response"]
    assert len(traces.spans()) == 1


async def test_a_cancelled_call_ends_its_span(traces: Traces) -> None:
    with ginnel.Service() as service:
        service.fail(delay=60)
        client = traced(service.async_client(), traces.provider)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.api_keys.list().first()
        await asyncio.sleep(0)

        [call] = traces.spans()
        assert about(call)["error.type"] == "CancelledError"
        client.close()


async def test_calls_at_once_keep_their_parents_apart(traces: Traces) -> None:
    async def job(client: ginnel.AsyncRemoteClient, number: int) -> None:
        with traces.tracer.start_as_current_span(f"job {number}"):
            await client.ip_policies.create(description=str(number))

    with ginnel.Service() as service:
        async with traced(service.async_client(), traces.provider) as client:
            await asyncio.gather(*(job(client, number) for number in range(8)))

    spans = traces.spans()
    jobs = {context(span).span_id for span in spans if span.name.startswith("job")}
    calls = [span for span in spans if span.kind is SpanKind.CLIENT]
    assert {span.parent.span_id for span in calls if span.parent} == jobs
    assert len(calls) == 8


def test_the_clients_of_agents_are_traced(traces: Traces) -> None:
    with ginnel.Service() as service, ginnel.Agent(service) as agent, agent.client() as plain:
        client = traced(plain, traces.provider)
        client.status()
        client.with_options(timeout=5).tunnels.list().to_list()

    assert [span.name for span in traces.spans()] == ["GET /status", "GET /tunnels"]


def test_without_a_span_nothing_is_sent() -> None:
    with Server([answer(200, KEY)]) as server:
        client = traced(ginnel.RemoteClient("k", base_url=server.url), NoOpTracerProvider())
        client.api_keys.get("ak_1")
        client.close()

    assert "traceparent" not in server.requests[0].headers


def test_the_client_that_was_given_stays_as_it_was(traces: Traces) -> None:
    with Server([answer(200, KEY)] * 2) as server:
        plain = ginnel.RemoteClient("k", base_url=server.url)
        watched = traced(plain, traces.provider)
        plain.api_keys.get("ak_1")
        assert repr(watched) == repr(plain)
        watched.close()

    assert plain.is_closed
    assert traces.spans() == []
    assert "traceparent" not in server.requests[0].headers


def test_without_opentelemetry_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; import ginnel; import ginnel.tracing"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert "pip install 'ginnel[opentelemetry]'" in done.stderr
