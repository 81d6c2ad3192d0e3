"""Walks `tests/data/bad_input` with both clients: what each bad input raises, and with what in it.

The files are described in their folder. Those that need a request no client would send (raw bytes,
a body that is no JSON, other headers) are left to the tests of the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

import ginnel
from cases import DATA, read_yaml
from postgres import PostgresServer

FILES = sorted((DATA / "bad_input").glob("*.yaml"))
CASES: dict[str, Any] = {
    re.sub(r"\W+", "_", case["name"]): case for path in FILES for case in read_yaml(path)
}
BEARER = re.compile(r"Bearer (\S+)", re.IGNORECASE)

MOST_DELETED = 10
"""Another service starts sooner than one deletes more things than this."""

CLASSES: dict[int, type[ginnel.APIStatusError]] = {
    400: ginnel.BadRequestError,
    401: ginnel.AuthenticationError,
    403: ginnel.PermissionDeniedError,
    404: ginnel.NotFoundError,
    409: ginnel.ConflictError,
    429: ginnel.RateLimitError,
    501: ginnel.ServerError,
}


def sendable(request: dict[str, Any]) -> bool:
    """Whether a client would send such a request."""
    headers = request.get("headers", {})
    authorization = headers.get("authorization", "Bearer x")
    path = request.get("path", "")
    query = parse_qsl(path.partition("?")[2], keep_blank_values=True)
    return (
        not {"raw", "text"} & request.keys()
        and set(headers) <= {"authorization"}
        and isinstance(authorization, str)
        and BEARER.fullmatch(authorization) is not None
        and request["method"] in ("GET", "POST", "PUT", "PATCH", "DELETE")
        and len(dict(query)) == len(query)
        and not {"%", "#"} & set(path)
    )


WALKED = {name: case for name, case in CASES.items() if sendable(case["request"])}


class Filler:
    """Fills in what stands in double braces."""

    def __init__(self, service: ginnel.Service) -> None:
        self.service = service
        self.saved: dict[str, Any] = {}
        self.made: list[tuple[str, str, Any]] = []
        """Method, path and answer of each request that prepared the case."""

    def __call__(self, value: Any) -> Any:
        match value:
            case str():
                return re.sub(r"\{\{(.*?)\}\}", lambda form: self.form(form[1]), value)
            case list():
                return [self(item) for item in value]
            case dict():
                return {self(name): self(item) for name, item in value.items()}
            case _:
                return value

    def form(self, form: str) -> str:
        key = self.service.api_key or ""
        if form == "token":
            return key
        if form.startswith("token:"):
            return key[: int(form.removeprefix("token:"))]
        if form == "host":
            return self.service.url.removeprefix("http://")
        if form == "#":
            return str(self.saved["#"])
        if "*" in form:
            text, times = form.rsplit("*", 1)
            return text * int(times)
        name, field = form.split(".")
        return str(self.saved[name][field])


def arguments(request: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    path = urlsplit(request["path"])
    query = parse_qsl(path.query, keep_blank_values=True)
    given: dict[str, Any] = {"query": dict(query)} if query else {}
    if "body" in request:
        given["json"] = request["body"]
    return request["method"], path.path, given


class SharedServices:
    """A service on each engine, which the next case gets if nothing of the last one is left."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.running: dict[str, ginnel.Service] = {}
        self.exits = contextlib.ExitStack()

    @contextlib.contextmanager
    def serve(self, case: dict[str, Any], engine: str) -> Iterator[ginnel.Service]:
        """The shared service, or a new one for a case with options of its own."""
        options = case.get("service", {})
        if options:
            limit = options.get("rate_limit")
            with contextlib.ExitStack() as exits:
                yield exits.enter_context(
                    ginnel.Service(
                        rate_limit=tuple(limit) if limit else None,
                        reserved_domains_only=options.get("reserved_domains_only", False),
                        **self.storage(engine, exits),
                    )
                )
            return
        if engine not in self.running:
            storage = self.storage(engine, self.exits)
            self.running[engine] = self.exits.enter_context(ginnel.Service(**storage))
        yield self.running[engine]

    def storage(self, engine: str, exits: contextlib.ExitStack) -> Any:
        if engine == "memory":
            return {}
        return {"store": exits.enter_context(self.server.database())}

    def replace(self, engine: str) -> None:
        """Starts a new service for the next case."""
        self.running.pop(engine, None)


@pytest.fixture(scope="module")
def services(postgres_server: PostgresServer) -> Iterator[SharedServices]:
    services = SharedServices(postgres_server)
    with services.exits:
        yield services


def prepare(remote: ginnel.RemoteClient, fill: Filler, step: dict[str, Any]) -> None:
    """Makes what a case needs; what it needs many of is made at once."""

    def make(number: int) -> Any:
        fill.saved["#"] = f"{number:x}"
        return arguments(fill(step))

    requests = [make(number) for number in range(step.get("repeat", 1))]
    with ThreadPoolExecutor(min(len(requests), 32)) as pool:
        made = list(pool.map(lambda it: remote.request(*it[:2], **it[2]), requests))
    fill.saved[step["save"]] = made[-1]
    fill.made += [
        (method, path, answer) for (method, path, _), answer in zip(requests, made, strict=True)
    ]


def is_clean(remote: ginnel.RemoteClient, fill: Filler) -> bool:
    """Deletes everything that a case has made, the newest first; false if something is left."""
    if len(fill.made) > MOST_DELETED:
        return False
    for method, path, answer in reversed(fill.made):
        if method != "POST":
            continue
        try:
            remote.request("DELETE", f"{path}/{answer['id']}")
        except ginnel.APIStatusError:
            return False
    return True


def send(service: ginnel.Service, request: dict[str, Any], face: str) -> object:
    bearer = BEARER.fullmatch(request.get("headers", {}).get("authorization", ""))
    options: dict[str, Any] = {"base_url": service.url, "max_retries": 0}
    key = bearer[1] if bearer else service.api_key
    method, path, given = arguments(request)
    if face == "blocking":
        with ginnel.RemoteClient(key, **options) as remote:
            return remote.request(method, path, **given)

    async def call() -> object:
        async with ginnel.AsyncRemoteClient(key, **options) as remote:
            return await remote.request(method, path, **given)

    return asyncio.run(call())


def raised(service: ginnel.Service, request: dict[str, Any], face: str) -> ginnel.APIStatusError:
    """What a client raises for a request."""
    with pytest.raises(ginnel.APIStatusError) as refused:
        send(service, request, face)
    return refused.value


@pytest.mark.parametrize("engine", ["memory", "postgresql"])
@pytest.mark.parametrize("name", WALKED)
def test_a_bad_input_raises_what_it_is(name: str, engine: str, services: SharedServices) -> None:
    case = WALKED[name]
    expected = case["answer"]
    with services.serve(case, engine) as service, service.client() as remote:
        fill = Filler(service)
        try:
            for step in case.get("setup", []):
                prepare(remote, fill, step)
            request = fill(case["request"])
            errors = [raised(service, request, face) for face in ("blocking", "asyncio")]
            expected = fill(expected)
        except BaseException:
            services.replace(engine)
            raise
        if not is_clean(remote, fill):
            services.replace(engine)

    for error in errors:
        code = f"ERR_NGROK_{expected['code']}" if expected["code"] else None
        assert (error.status_code, error.error_code) == (expected["status"], code)
        kind = CLASSES.get(error.status_code, ginnel.APIStatusError)
        key_refused = error.status_code == 403 and 200 <= (expected["code"] or 0) <= 208
        assert type(error) is (ginnel.AuthenticationError if key_refused else kind)
        assert expected.get("msg_contains", "") in error.message
        assert error.message in str(error)
        assert "\n" not in str(error)
        if "details" in expected:
            assert error.details.keys() == expected["details"].keys()
        assert error.operation_id is None or error.operation_id.startswith("op_")


def test_most_files_are_walked() -> None:
    assert len(WALKED) > 0.85 * len(CASES), sorted(CASES.keys() - WALKED.keys())
