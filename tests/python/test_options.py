"""Options of the clients: what they take, and what is said of anything else."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import ginnel
from conftest import Face
from server import Server, answer

KEY = {"id": "ak_1", "uri": "u"}
CLIENTS = [
    ginnel.RemoteClient,
    ginnel.AsyncRemoteClient,
    ginnel.AgentClient,
    ginnel.AsyncAgentClient,
]
REMOTE = CLIENTS[:2]


def with_options(client: Any, **options: Any) -> Any:
    """A copy of a client of either kind, behind the same face."""
    copied = getattr(client, "_target", client).with_options(**options)
    return Face(copied) if isinstance(client, Face) else copied


def refused(kind: Any, **options: Any) -> str:
    """What a client says of options; it is always one line."""
    if kind in REMOTE:
        options = {"api_key": "k", "base_url": "https://x.test", **options}
    with pytest.raises(ginnel.ConfigError) as caught:
        kind(**options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("max_retries", -1, "max_retries=-1: must be 0 or more"),
        ("max_retries", -(10**30), f"max_retries=-{10**30}: must be 0 or more"),
        ("max_retries", "2", 'max_retries="2": must be a whole number, not str'),
        ("max_retries", 2.0, "max_retries=2.0: must be a whole number, not float"),
        ("timeout", "x", 'timeout="x": must be a number of seconds, not str'),
        ("timeout", -1, "timeout=-1: must be 0 or more seconds; 0 is no limit"),
        ("timeout", -0.5, "timeout=-0.5: must be 0 or more seconds; 0 is no limit"),
        ("timeout", -(10**400), "must be 0 or more seconds; 0 is no limit"),
        ("timeout", float("nan"), "timeout=nan: must be 0 or more seconds; 0 is no limit"),
        ("timeout", (1, 2), "timeout=(1, 2): must be a number of seconds, not tuple"),
        ("deadline", [], "deadline=[]: must be a number of seconds, not list"),
        ("deadline", float("-inf"), "deadline=-inf: must be 0 or more seconds; 0 is no limit"),
        ("headers", ["a"], 'headers=["a"]: must be a mapping of str to str, not list'),
        ("headers", "a: b", "must be a mapping of str to str, not str"),
        ("headers", {"a": 1}, 'headers must be a mapping of str to str: "a" is not str but int'),
        ("headers", {1: "a"}, "headers must be a mapping of str to str: a name is not str but int"),
        ("headers", {"a b": "c"}, 'headers "a b" is not the name of a header'),
        ("headers", {"": "c"}, 'headers "" is not the name of a header'),
        ("headers", {"a": "b\n"}, 'headers "a" has characters that no header may carry'),
        ("on_request", 5, "on_request=5: must be callable, not int"),
        ("on_response", 0, "on_response=0: must be callable, not int"),
        ("on_retry", "", 'on_retry="": must be callable, not str'),
        ("base_url", 5, "base_url=5: must be a str, not int"),
        ("base_url", "ftp://x", 'base_url="ftp://x": must start with http:// or https://'),
        ("base_url", "http://x.test", 'base_url="http://x.test'),
        ("allow_http", "no", 'allow_http="no": must be True or False, not str'),
        ("app", b"x", "app=<bytes>: must be a str, not bytes"),
        ("ca_bundle", 5, "ca_bundle=5: must be the path of a file, not int"),
        ("ca_bundle", "/nowhere", 'ca_bundle="/nowhere": cannot be read: '),
        ("client_cert", 5, "client_cert=5: must be the path of a PEM file, or a pair of them"),
        ("client_cert", ("/a",), 'client_cert=("/a"): must be the path of a PEM file, or a pair'),
        ("client_cert", ("/a", 5), 'client_cert=("/a", 5): must be the path of a PEM file'),
        ("client_cert", "/nowhere", 'client_cert="/nowhere": cannot be read: '),
        ("client_cert", ("/no", "/where"), 'client_cert="/no": cannot be read: '),
    ],
)
def test_a_bad_option_is_told_with_what_it_takes(
    kind: Any, option: str, value: object, said: str
) -> None:
    assert said in refused(kind, **{option: value})


@pytest.mark.parametrize("kind", REMOTE)
@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("api_key", 5, "api_key must be a str, not int"),
        ("service_version", 2, "service_version=2: must be a str, not int"),
        ("proxy", 5, "proxy=5: must be a str, not int"),
        ("proxy", "", 'proxy="": empty host; must be http, https, socks5 or socks5h://'),
        ("proxy", "ftp://p", 'proxy="ftp://p": the scheme ftp is not supported; must be http'),
        ("trust_env", 1, "trust_env=1: must be True or False, not int"),
    ],
)
def test_a_bad_option_of_the_management_api_too(
    kind: Any, option: str, value: object, said: str
) -> None:
    assert said in refused(kind, **{option: value})


@pytest.mark.parametrize("kind", REMOTE)
@pytest.mark.parametrize(
    "options",
    [
        {"api_key": ["s3cret"]},
        {"api_key": b"s3cret-of-many-letters"},
        {"api_key": "s3cret\n-"},
        {"headers": {"x-api-key": "s3cret\n"}},
        {"headers": {"authorization": b"Bearer s3cret"}},
        {"headers": [("authorization", "Bearer s3cret")]},
        {"headers": ["authorization: Bearer s3cret-of-many-letters"]},
        {"base_url": "https://user:s3cret@x.test"},
        {"base_url": "https:user:s3cret@x.test"},
        {"proxy": "ftp://user:s3cret@x.test"},
        {"proxy": ["http://user:s3cret@x.test"]},
        {"client_cert": "-----BEGIN PRIVATE KEY-----\ns3cret"},
        {"client_cert": ("/nowhere", "-----BEGIN PRIVATE KEY-----\ns3cret")},
    ],
)
def test_no_secret_is_told(kind: Any, options: dict[str, Any]) -> None:
    assert "s3cret" not in refused(kind, **options)


def test_what_is_told_of_a_value_is_short() -> None:
    for value in ["x" * 9_000, ["x" * 9_000] * 9_000, 10**4000, object(), {"a": "b" * 9_000}]:
        assert len(refused(ginnel.RemoteClient, timeout=[value], app=value)) < 500


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("time_out", "; did you mean 'timeout'?"),
        ("max_retry", "; did you mean 'max_retries'?"),
        ("header", "; did you mean 'headers'?"),
        ("on_reponse", "; did you mean 'on_response'?"),
        ("cert", ""),
        ("zzz", ""),
    ],
)
def test_an_unknown_option_is_told_with_the_nearest_one(kind: Any, option: str, hint: str) -> None:
    with pytest.raises(TypeError) as caught:
        kind(**{option: 1})

    assert str(caught.value) == f"{kind.__name__}() has no option {option!r}{hint}"


@pytest.mark.parametrize("kind", CLIENTS)
def test_unknown_options_of_with_options(kind: Any) -> None:
    client = kind(base_url="https://x.test", **({"api_key": "k"} if kind in REMOTE else {}))
    method = f"{kind.__name__}.with_options()"
    for option, said in [
        ("time_out", f"{method} has no option 'time_out'; did you mean 'timeout'?"),
        ("ca_bundle", f"{method} has no option 'ca_bundle': it is set once, by {kind.__name__}()"),
        ("zzz", f"{method} has no option 'zzz'"),
    ]:
        with pytest.raises(TypeError) as caught:
            client.with_options(**{option: 1})
        assert str(caught.value) == said
    with pytest.raises(ginnel.ConfigError, match="max_retries=-1: must be 0 or more"):
        client.with_options(max_retries=-1)
    with pytest.raises(ginnel.ConfigError, match='headers "connection" is set by the client'):
        client.with_options(headers={"connection": "close"})
    client.close()


def test_a_subclass_is_named_by_its_own_name() -> None:
    class Deployments(ginnel.RemoteClient):
        pass

    with pytest.raises(TypeError, match=r"^Deployments\(\) has no option 'keys'$"):
        Deployments(keys="k")  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", CLIENTS)
def test_the_options_can_still_be_looked_up(kind: Any) -> None:
    options = inspect.signature(kind).parameters

    assert {"base_url", "timeout", "client_cert", "on_retry"} <= options.keys()
    assert not {"options", "arguments"} & options.keys()
    assert "Args:" in kind.__init__.__doc__


@pytest.mark.parametrize(
    "name",
    [
        "Connection",
        "content-length",
        "Expect",
        "keep-alive",
        "proxy-connection",
        "TE",
        "trailer",
        "Transfer-Encoding",
        "upgrade",
    ],
)
def test_headers_of_the_transport_are_refused(name: str) -> None:
    for kind in CLIENTS:
        said = refused(kind, headers={name: "1"})
        assert said.startswith(f'headers "{name}" is set by the client itself')


def test_the_login_of_a_proxy_is_no_header() -> None:
    said = refused(ginnel.RemoteClient, headers={"Proxy-Authorization": "Basic eDp5"})
    assert said.startswith('headers "Proxy-Authorization" would reach the server; use proxy=')


async def test_other_headers_are_sent_as_they_are_passed(make_client: Any) -> None:
    headers = {"Host": "api.example.test:8443", "User-Agent": "mine", "X-Team": "edge"}
    with Server([answer(200, KEY)]) as server:
        await make_client("k", base_url=server.url, headers=headers).api_keys.get("ak_1")

    sent = server.requests[0].headers
    assert sent["host"] == "api.example.test:8443"
    assert (sent["user-agent"], sent["x-team"]) == ("mine", "edge")


@pytest.mark.parametrize("host", ["", "a b", "user@x.test", "x.test/path", "x.test:port"])
def test_a_host_must_be_one(host: str) -> None:
    said = refused(ginnel.RemoteClient, headers={"host": host})
    assert said == 'headers "host" must be a host, or a host and a port'


async def test_any_mapping_will_do_and_is_read_at_once(make_client: Any) -> None:
    class Headers(Mapping[str, str]):
        def __init__(self) -> None:
            self.value = "first"

        def __getitem__(self, name: str) -> str:
            return {"x-turn": self.value}[name]

        def __iter__(self) -> Iterator[str]:
            return iter(["x-turn"])

        def __len__(self) -> int:
            return 1

    headers = Headers()
    with Server([answer(200, KEY)] * 2) as server:
        client = make_client("k", base_url=server.url, headers=headers)
        headers.value = "second"
        await client.api_keys.get("ak_1")
        copy = with_options(client, headers=headers)
        headers.value = "third"
        await copy.api_keys.get("ak_1")

    assert [request.headers["x-turn"] for request in server.requests] == ["first", "second"]


def test_large_numbers_mean_no_limit() -> None:
    for options in [{"timeout": 10**400}, {"deadline": float("inf")}, {"max_retries": 10**30}]:
        ginnel.AgentClient(**options).close()  # type: ignore[arg-type]


def test_what_connections_depend_on_stays_when_its_file_is_gone(tmp_path: Path) -> None:
    import trustme

    bundle = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(bundle)
    client = ginnel.RemoteClient("k", base_url="https://x.test", ca_bundle=bundle)
    bundle.unlink()

    assert client.with_options(timeout=1).base_url == client.base_url


def test_what_connections_depend_on_stays_when_the_environment_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GINNEL_BASE_URL", "https://x.test")
    client = ginnel.RemoteClient("k")
    monkeypatch.setenv("GINNEL_BASE_URL", "https://y.test")
    monkeypatch.setenv("https_proxy", "ftp://nowhere")

    assert client.with_options(timeout=1).base_url == "https://x.test"


async def test_extra_query_is_appended_to_each_request(make_client: Any) -> None:
    page = {"keys": [KEY], "uri": "u", "next_page_uri": "/api_keys?tag=x&before_id=ak_1"}
    with Server(
        [answer(200, KEY), answer(200, page), answer(200, page), answer(200, {})]
    ) as server:
        plain = make_client("k", base_url=server.url)
        values = {"tag": ["a b", "&"], "flag": True, "n": 2**70, "x": 0.5, "é": "", "no": None}
        client = with_options(plain, extra_query=values)
        await client.api_keys.get("ak_1")
        async for _ in client.api_keys.list(limit=1).pages():
            if len(server.requests) == 3:
                break
        await client.request("GET", "/x", query={"flag": "mine"})

    shown = f"flag=true&n={2**70}&x=0.5&%C3%A9="
    assert [request.target for request in server.requests] == [
        f"/api_keys/ak_1?tag=a%20b&tag=%26&{shown}",
        f"/api_keys?limit=1&tag=a%20b&tag=%26&{shown}",
        f"/api_keys?tag=x&before_id=ak_1&{shown}",
        f"/x?flag=mine&tag=a%20b&tag=%26&n={2**70}&x=0.5&%C3%A9=",
    ]


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (5, "extra_query=5: must be a mapping of names to values, not int"),
        ({"a": object()}, 'extra_query "a" must be a str, int, float or bool, or a list of them'),
        ({"a": [[1]]}, 'extra_query "a" must be a str, int, float or bool, or a list of them'),
        ({"a": b"b"}, 'extra_query "a" must be a str, int, float or bool, or a list of them'),
        ({"a": float("nan")}, 'extra_query "a" must be a finite number'),
        ({"a": "\ud800"}, 'extra_query "a" must not hold half of a surrogate pair'),
        ({1: "a"}, "extra_query must have names that are a str, not empty"),
        ({"": "a"}, "extra_query must have names that are a str, not empty"),
    ],
)
def test_a_bad_extra_query_names_the_parameter(kind: Any, value: Any, said: str) -> None:
    client = kind(base_url="https://x.test", **({"api_key": "k"} if kind in REMOTE else {}))

    with pytest.raises(ginnel.ConfigError) as caught:
        client.with_options(extra_query=value)

    assert said in str(caught.value)


async def test_changed_options_leave_the_others_as_they_are(make_client: Any) -> None:
    with Server([answer(200, KEY)] * 4) as server:
        options: dict[str, Any] = {
            "app": "tool/1",
            "headers": {"x-a": "1", "x-b": "2"},
            "service_version": "3",
        }
        client = make_client("secret-key", base_url=server.url, **options)
        changed: list[dict[str, Any]] = [
            {"timeout": 5},
            {"extra_query": {"a": 1}},
            {"headers": {"x-a": "3"}},
            {"service_version": "4"},
        ]
        for changes in changed:
            client = with_options(client, **changes)
            await client.api_keys.get("ak_1")

    told = [
        [request.headers.get(name) for name in ("x-a", "x-b", "service-version")]
        for request in server.requests
    ]
    assert told == [["1", "2", "3"], ["1", "2", "3"], ["3", None, "3"], ["3", None, "4"]]
    for request in server.requests:
        assert request.headers["authorization"] == "Bearer secret-key"
        assert request.headers["user-agent"].startswith("tool/1 ginnel/")
    assert [request.target for request in server.requests][1:] == ["/api_keys/ak_1?a=1"] * 3


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_client_says_why_it_is_not_pickled(kind: Any) -> None:
    own: Any = type("Own", (kind,), {})

    for made in (kind, own):
        client = made("k", base_url="http://127.0.0.1:1") if "Remote" in kind.__name__ else made()
        name = made.__name__
        for copied in (pickle.dumps, copy.deepcopy):
            words = rf"^{name} cannot be pickled or copied deeply: .* make another {name} where"
            with pytest.raises(TypeError, match=words):
                copied(client)
        shallow: Any = copy.copy(client)
        assert type(shallow) is made
        shallow.close()
        assert client.is_closed


def test_what_belongs_to_a_client_says_so_too() -> None:
    with (
        ginnel.RemoteClient("k", base_url="http://127.0.0.1:1") as client,
        ginnel.AgentClient() as agent,
    ):
        for part in (client.api_keys, client.api_keys.list(), client.with_raw_response):
            with pytest.raises(TypeError, match=r"belongs to a client .* another RemoteClient"):
                pickle.dumps(part)
        with pytest.raises(TypeError, match="make another AgentClient"):
            pickle.dumps(agent.tunnels)


def test_a_service_and_an_agent_are_not_pickled() -> None:
    with ginnel.Service() as service:
        for copied in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="Service cannot be pickled or copied: it runs in"):
                copied(service)


def test_the_certificate_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GINNEL_CLIENT_CERT", str(tmp_path / "none.pem"))

    with pytest.raises(ginnel.ConfigError, match=r"^GINNEL_CLIENT_CERT=.*cannot be read"):
        ginnel.RemoteClient("k", base_url="https://x.test")
