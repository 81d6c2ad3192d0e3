"""Calls the methods of the generated client one after the other, and says what became of each."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal
from urllib.parse import urlsplit

import ginnel
from api_rows import CREATED, MODULES, PAGE, RESOURCES, UPDATED, Resource, Rows, plain

Method = Callable[..., Any]
ONE_TIME = {"token", "secret", "client_secret", "private_key"}
"""Fields that only the response to the call that sets them shows."""
CHANGING = {"updated_at", "last_updated_by"}


class Mismatch(Exception):
    """A call succeeded without the effect that it promises."""


@dataclass(frozen=True)
class Outcome:
    """What became of a method."""

    kind: Literal["works", "refused", "broken"]
    text: str = ""
    code: str | None = None

    @property
    def is_absent(self) -> bool:
        """Whether the service does not know the path, or the method at it."""
        return self.kind == "broken" and self.text.startswith(("404 Not Found", "405 "))

    @property
    def cause(self) -> str:
        """A refusal in the words that it has in common with those of other methods."""
        words = self.text.partition("; known: ")[0]
        words = words.rpartition(" (docs/")[0].rpartition(": ")[2] or words
        return words.replace(";", ",")


@dataclass
class Exchange:
    """The last call that the client made."""

    path: str = ""
    status: int | None = None
    body: str = ""


class Run:
    """One run over all methods."""

    def __init__(
        self, service: ginnel.Service, module: ModuleType, client: Any, methods: dict[str, Method]
    ) -> None:
        self.service = service
        self.module = module
        self.methods = methods
        self.rows = Rows(client, module.datatypes, service)
        self.outcomes = {
            name: Outcome("broken", "this script does not call it") for name in methods
        }
        self.arguments: dict[str, dict[str, int]] = {}
        self._exchange = Exchange()
        self._observe(module.http_client)

    def _observe(self, http_client: Any) -> None:
        request = http_client.requests.request

        def observed(method: str, url: str, **options: Any) -> Any:
            self._exchange = Exchange(urlsplit(url).path)
            response = request(method, url, **options)
            self._exchange.status, self._exchange.body = response.status_code, response.text
            return response

        http_client.requests.request = observed

    def all(self) -> None:
        with self._agent() as agent, agent.client() as here:
            here.tunnels.start(addr=8080, proto="http", name="first")
            here.tunnels.start(addr=8080, proto="http", name="second")
            for path, resource in RESOURCES.items():
                if path == "edges.https_routes":
                    self._routes(resource)
                else:
                    self._resource(path, resource)
            for name, (owner, fields) in MODULES.items():
                self._module(name, owner, fields(self.rows))
            self._domains()
            self._event_sources()
            self._secrets_of_a_vault()
            self._tunnels()
            self._sessions(agent)
        self._arguments()

    def _agent(self, authtoken: str | None = None) -> ginnel.Agent:
        return ginnel.Agent(self.service, authtoken=authtoken)

    # One call

    def call(
        self,
        method: str,
        *arguments: Any,
        observe: Callable[[Any], None] | None = None,
        **fields: Any,
    ) -> Any:
        """Calls a method of this version of the client, and notes what became of it."""
        if method not in self.methods:
            return None
        try:
            result = self.methods[method](*arguments, **fields)
            outcome = Outcome("works")
        except Exception as error:
            result, outcome = None, self._failed(error)
        # The client may fail although the service did what it was asked for.
        if observe and (outcome.kind == "works" or self._exchange.status == 204):
            outcome = self._observed(lambda: observe(result)) or outcome
        self.outcomes[method] = outcome
        return result

    @staticmethod
    def _observed(observe: Callable[[], None]) -> Outcome | None:
        try:
            observe()
        except Exception as error:
            return Outcome("broken", f"{type(error).__name__}: {error}")
        return None

    def _failed(self, error: Exception) -> Outcome:
        status = self._exchange.status
        if status is None or status < 400:
            return Outcome("broken", f"the client fails: {type(error).__name__}: {error}")
        try:
            refusal = json.loads(self._exchange.body)
        except ValueError:
            return Outcome("broken", f"{status} without JSON: {self._exchange.body[:100]!r}")
        code, message = refusal.get("error_code"), refusal.get("msg")
        in_words = status == 501 or (400 <= status < 500 and status not in (401, 403, 404, 429))
        if code and message and in_words:
            return Outcome("refused", message, code)
        return Outcome("broken", f"{status} {message}: {self._exchange.path}")

    def _expect_failure(self, status: int, method: Method, *arguments: Any) -> None:
        with contextlib.suppress(self.module.Error):
            method(*arguments)
        if self._exchange.status != status:
            raise Mismatch(f"{self._exchange.path} responds {self._exchange.status}, not {status}")

    # Rows

    def _resource(self, path: str, resource: Resource) -> None:
        fields = resource.create(self.rows)
        made = self.call(
            f"{path}.create",
            observe=lambda row: self._created(path, plain(row), sent(fields, resource)),
            **fields,
        )
        another = self.rows.create(path)
        row = plain(made) if made else self._found(path, another)
        identifier = row.get("id", resource.missing)
        self.call(f"{path}.get", identifier, observe=lambda it: check_equal(plain(it), row))
        self.call(f"{path}.list", limit="1", observe=lambda it: check_listed(it, identifier))
        self._update(path, resource, row, identifier)
        self.call(f"{path}.delete", identifier, observe=lambda _: self._deleted(path, row))

    def _created(self, path: str, row: dict[str, Any], fields: dict[str, Any]) -> None:
        check_agrees(row, fields)
        if observe := getattr(self, f"_created_{path.replace('.', '_')}", None):
            observe(row)

    def _first(self, path: str) -> dict[str, Any]:
        """A row that is there without our doing."""
        with contextlib.suppress(Exception):
            for row in self.methods[f"{path}.list"]():
                return dict(plain(row))
        return {}

    def _found(self, path: str, identifier: str) -> dict[str, Any]:
        """A row that the client has not created."""
        with contextlib.suppress(Exception):
            return dict(plain(self.methods[f"{path}.get"](identifier)))
        return self._first(path)

    def _update(self, path: str, resource: Resource, row: dict[str, Any], identifier: str) -> None:
        if f"{path}.update" not in self.methods:
            return
        fields = resource.update(self.rows)
        deactivated = self._deactivated(identifier) if "active" in fields else None

        def updated(result: Any) -> None:
            changed = plain(result)
            check_agrees(changed, sent(fields, resource))
            check_equal(plain(self.methods[f"{path}.get"](identifier)), changed)
            check_equal(changed, row, ignored=set(fields))
            if deactivated:
                deactivated()

        self.call(f"{path}.update", identifier, observe=updated, **fields)

    def _deleted(self, path: str, row: dict[str, Any]) -> None:
        self._expect_failure(404, self.methods[f"{path}.get"], row["id"])
        if path == "api_keys":
            self._expect_failure(403, self._with(row["token"]).api_keys.list)

    # What else is seen of rows

    def _with(self, key: str) -> Any:
        return self.module.Client(key, self.service.url)

    def _created_api_keys(self, row: dict[str, Any]) -> None:
        self._with(row["token"]).api_keys.list()

    def _created_credentials(self, row: dict[str, Any]) -> None:
        with self._agent(row["token"]) as agent:
            wait_until(lambda: agent.state == "online", "the agent is not online")

    def _created_endpoints(self, row: dict[str, Any]) -> None:
        if self._visit(row["url"]) != PAGE:
            raise Mismatch("the endpoint does not serve its policy")

    def _visit(self, url: str) -> str:
        address = str(self.service.http_url)
        request = urllib.request.Request(address, headers={"Host": urlsplit(url).netloc})
        with urllib.request.urlopen(request, timeout=20) as response:
            return str(response.read().decode())

    def _deactivated(self, owner: str) -> Callable[[], None]:
        """Checks that a key which its owner has now is refused."""
        key = ""
        with contextlib.suppress(Exception):
            key = self.methods["api_keys.create"](owner_id=owner).token
        return lambda: self._expect_failure(403, self._with(key).api_keys.list)

    # Rows that are called in other ways

    def _routes(self, resource: Resource) -> None:
        fields = resource.create(self.rows)
        edge = fields["edge_id"]
        path = "edges.https_routes"
        host = f"{self.rows.host()}:80"

        def created(result: Any) -> None:
            check_agrees(plain(result), sent(fields, resource))
            self.methods["edges.https.update"](edge, hostports=[host])
            if self._visit(f"http://{host.removesuffix(':80')}") != PAGE:
                raise Mismatch("the route does not lead to its backend")

        made = self.call(f"{path}.create", observe=created, **fields)
        row = plain(made) if made else {}
        identifier = row.get("id", resource.missing)
        self.call(f"{path}.get", edge, identifier, observe=lambda it: check_equal(plain(it), row))
        change = resource.update(self.rows)

        def updated(result: Any) -> None:
            check_agrees(plain(result), change)
            check_equal(plain(result), row, ignored={*change, "metadata"})

        self.call(f"{path}.update", edge, identifier, observe=updated, **change)
        get = self.methods[f"{path}.get"]
        self.call(
            f"{path}.delete",
            edge,
            identifier,
            observe=lambda _: self._expect_failure(404, get, edge, identifier),
        )

    def _module(self, name: str, owner: str, fields: dict[str, Any]) -> None:
        path = f"edge_modules.{name}"
        if f"{path}.replace" not in self.methods:
            return
        identifiers = self._owner(owner)
        kind = self.methods[f"{path}.replace"].__annotations__["module"]
        module = self.rows.argument(kind, enabled=True, **fields)
        get = self.methods[f"{path}.get"]
        place = ""

        def replaced(result: Any) -> None:
            nonlocal place
            place = self._exchange.path.rpartition("/")[2]
            shown = plain(result)
            check_agrees(shown, {"enabled": True, **fields})
            check_equal(plain(get(*identifiers)), shown)
            check_equal(self._module_in(owner, identifiers, place), shown)

        def deleted(_: Any) -> None:
            self._expect_failure(404, get, *identifiers)
            if not place:
                raise Mismatch("nothing was there to delete")
            if self._module_in(owner, identifiers, place) is not None:
                raise Mismatch("its owner still has it")

        self.call(f"{path}.replace", *identifiers, module, observe=replaced)
        self.call(
            f"{path}.get",
            *identifiers,
            observe=lambda it: check_agrees(plain(it), {"enabled": True, **fields}),
        )
        self.call(f"{path}.delete", *identifiers, observe=deleted)

    def _owner(self, owner: str) -> tuple[str, ...]:
        try:
            return self.rows.owner(owner)
        except Exception:
            return (RESOURCES[owner].missing,)

    def _module_in(self, owner: str, identifiers: tuple[str, ...], place: str) -> Any:
        return plain(self.methods[f"{owner}.get"](*identifiers)).get(place)

    def _domains(self) -> None:
        get = self.methods["reserved_domains.get"]

        def lacks(field: str) -> Callable[[Any], None]:
            def observe(_: Any) -> None:
                if plain(get(domain)).get(field) is not None:
                    raise Mismatch(f"{field} is still there")

            return observe

        domain = self.rows.create("reserved_domains")
        for field in ("certificate", "certificate_management_policy"):
            self.call(f"reserved_domains.delete_{field}", domain, observe=lacks(field))

    def _event_sources(self) -> None:
        subscription = self.rows.create("event_subscriptions")
        path = "event_sources"

        def has_type(result: Any) -> None:
            check_agrees(plain(result), {"type": UPDATED})

        def listed(result: Any) -> None:
            if {source["type"] for source in plain(result)["sources"]} != {CREATED, UPDATED}:
                raise Mismatch("the list lacks a source")

        get = self.methods[f"{path}.get"]
        self.call(f"{path}.create", subscription, UPDATED, observe=has_type)
        self.call(f"{path}.get", subscription, UPDATED, observe=has_type)
        self.call(f"{path}.update", subscription, UPDATED, observe=has_type)
        self.call(f"{path}.list", subscription, observe=listed)
        self.call(
            f"{path}.delete",
            subscription,
            UPDATED,
            observe=lambda _: self._expect_failure(404, get, subscription, UPDATED),
        )

    def _secrets_of_a_vault(self) -> None:
        fields = self.rows.fields("secrets")
        with contextlib.suppress(Exception):
            self.methods["secrets.create"](**fields)

        def listed(result: Any) -> None:
            if [secret["name"] for secret in plain(result)["secrets"]] != [fields["name"]]:
                raise Mismatch("the list lacks the secret")

        self.call("vaults.get_secrets_by_vault", fields["vault_id"], observe=listed)

    def _tunnels(self) -> None:
        row = self._first("tunnels")
        self.call("tunnels.get", row["id"], observe=lambda it: check_equal(plain(it), row))
        self.call("tunnels.list", limit="1", observe=lambda it: check_listed(it, row["id"], 2))

    def _sessions(self, agent: ginnel.Agent) -> None:
        row = self._first("tunnel_sessions")
        path, identifier = "tunnel_sessions", row["id"]
        self.call(f"{path}.get", identifier, observe=lambda it: check_equal(plain(it), row))
        with self._agent():
            self.call(f"{path}.list", limit="1", observe=lambda it: check_listed(it, identifier, 2))
        self.call(f"{path}.update", identifier)

        def restarted(_: Any) -> None:
            wait_until(lambda: self._sessions_now() not in ([], [identifier]), "no other session")
            wait_until(lambda: len(self._sessions_now()) == 1, "the session is still there")

        def stopped(_: Any) -> None:
            wait_until(lambda: agent.state == "offline", "the agent is still online")

        wait_until(lambda: self._sessions_now() == [identifier], "the other session is still there")
        self.call(f"{path}.restart", identifier, observe=restarted)
        self.call(f"{path}.stop", self._sessions_now()[0], observe=stopped)

    def _sessions_now(self) -> list[str]:
        return [session.id for session in self.methods["tunnel_sessions.list"]()]

    # Arguments that not every service knows

    def _arguments(self) -> None:
        values = {"filter": 'obj.id == "none"', "id": ["none"], "url": ["https://none.test"]}
        for name, method in self.methods.items():
            parameters = method.__annotations__
            for argument in [it for it in values if name.endswith(".list") and it in parameters]:
                count = self.arguments.setdefault(f"list({argument}=…)", {})
                outcome = self._try_argument(method, {argument: values[argument]})
                count[outcome] = count.get(outcome, 0) + 1

    def _try_argument(self, method: Method, arguments: dict[str, Any]) -> str:
        try:
            rows = list(iterate(method(**arguments)))
        except Exception as error:
            outcome = self._failed(error)
            # The words of a path that is not offered at all say nothing about an argument.
            known = outcome.kind == "refused" and self._exchange.status != 501
            return f"refused, {outcome.code}" if known else "no such list"
        return "has no effect" if rows else "works"


def sent(fields: dict[str, Any], resource: Resource) -> dict[str, Any]:
    """The fields of a call that its response shows."""
    return {name: plain(it) for name, it in fields.items() if name not in resource.write_only}


def iterate(listed: Any) -> Iterator[Any]:
    """The rows of all pages, by the client's own pager."""
    pager = iter(listed)
    with contextlib.suppress(StopIteration):
        while True:
            yield next(pager)


def check_listed(listed: Any, identifier: str, count: int = 1) -> None:
    seen = [row.id for row in iterate(listed)]
    if identifier not in seen or len(seen) < count:
        raise Mismatch(f"the list lacks {identifier}")
    if len(seen) != len(set(seen)):
        raise Mismatch("the list has a row twice")


def check_equal(shown: Any, expected: Any, ignored: set[str] | None = None) -> None:
    ignored = ONE_TIME | CHANGING | (ignored or set())
    shown, expected = without(shown, ignored), without(expected, ignored)
    if shown != expected:
        raise Mismatch(f"{shown} is not {expected}")


def without(value: Any, ignored: set[str]) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: without(part, ignored) for name, part in value.items() if name not in ignored}


def check_agrees(shown: Any, fields: Any, where: str = "") -> None:
    """Checks that a response has what was sent; identifiers may be shown as references."""
    if isinstance(fields, dict) and isinstance(shown, dict):
        for name, value in fields.items():
            if name not in ONE_TIME:
                check_agrees(*referred(shown, name, value), f"{where}.{name}")
    elif not same(shown, fields):
        raise Mismatch(f"{where}: {shown!r} is not {fields!r}")


def referred(shown: dict[str, Any], name: str, value: Any) -> tuple[Any, Any]:
    """A field as it is shown and as it was sent, for `x_id` and `x_ids` too."""
    stem = name.removesuffix("s").removesuffix("_id")
    if name in shown or stem == name.removesuffix("s"):
        return shown.get(name), value
    if name.endswith("_id"):
        return (shown.get(stem) or {}).get("id"), value
    plural = next((it for it in (f"{stem}s", f"{stem[:-1]}ies") if it in shown), stem)
    return [row["id"] for row in shown.get(plural) or []], value


def same(shown: Any, value: Any) -> bool:
    if isinstance(shown, str) and isinstance(value, str) and value.startswith("{"):
        return bool(json.loads(shown) == json.loads(value))
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return len(shown) == len(value) and all(
            part.items() <= whole.items() for part, whole in zip(value, shown, strict=True)
        )
    return bool(shown == value)


def wait_until(condition: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + 30
    while not condition():
        if time.monotonic() > end:
            raise Mismatch(otherwise)
        time.sleep(0.05)
