"""Who loses the right to be here is gone at once: credentials, bot users and access lists."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import ginnel
from addresses import own_host
from ginnel.remote.bot_users import BotUser
from ginnel.remote.credentials import Credential
from listener import Listener
from processes import wait_until

BASE = "tunnels.test"


@pytest.fixture
def service() -> Iterator[ginnel.Service]:
    with ginnel.Service(base_domain=BASE, edge_host=own_host()) as service:
        yield service


@pytest.fixture
def remote(service: ginnel.Service) -> Iterator[ginnel.RemoteClient]:
    with service.client() as client:
        yield client


class Local(Listener):
    """A local service that answers requests, switches protocols when asked to, and echoes bytes."""

    def serve(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as lines:
            while first := lines.readline():
                if not first.endswith(b"HTTP/1.1\r\n"):
                    connection.sendall(first)
                    continue
                head = b"".join(iter(lines.readline, b"\r\n")).lower()
                if b"upgrade: websocket" in head:
                    connection.sendall(
                        b"HTTP/1.1 101 Switching Protocols\r\n"
                        b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
                    )
                else:
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")


@pytest.fixture
def local() -> Iterator[Local]:
    with Local() as local:
        yield local


@contextlib.contextmanager
def stopped_soon(service: ginnel.Service, **options: Any) -> Iterator[ginnel.Agent]:
    """An agent whose visitors need not leave before it does."""
    agent = ginnel.Agent(service, **options)
    try:
        yield agent
    finally:
        agent.stop(grace=0)


def soon(check: Callable[[], Any], what: str) -> None:
    wait_until(check, what)


class Visitors:
    """Opens connections of visitors, which are closed after the test."""

    def __init__(self, service: ginnel.Service, stack: contextlib.ExitStack) -> None:
        self.service, self.stack = service, stack

    def at(self, host: str) -> Visitor:
        visitor = Visitor(self.service, host)
        self.stack.callback(visitor.close)
        return visitor

    def stream(self, url: str) -> socket.socket:
        host, port = url.removeprefix("tcp://").rsplit(":", 1)
        stream = socket.create_connection((host, int(port)), timeout=30)
        return self.stack.enter_context(stream)


@pytest.fixture
def visitors(service: ginnel.Service) -> Iterator[Visitors]:
    with contextlib.ExitStack() as stack:
        yield Visitors(service, stack)


class Visitor:
    """Connections of a visitor who was there before something was revoked."""

    def __init__(self, service: ginnel.Service, host: str) -> None:
        assert service.http_url is not None
        self.place = service.http_url.removeprefix("http://").removesuffix("/")
        self.host = host
        self.kept = http.client.HTTPConnection(self.place, timeout=30)
        assert self.ask_again()
        self.websocket = self._upgrade()

    def _upgrade(self) -> socket.socket:
        address, port = self.place.rsplit(":", 1)
        stream = socket.create_connection((address, int(port)), timeout=30)
        stream.sendall(
            f"GET / HTTP/1.1\r\nHost: {self.host}\r\nConnection: Upgrade\r\n"
            "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            piece = stream.recv(1)
            assert piece, head
            head += piece
        assert head.startswith(b"HTTP/1.1 101")
        assert echoes(stream)
        return stream

    def close(self) -> None:
        self.kept.close()
        self.websocket.close()

    def ask_again(self) -> bool:
        """Whether the tunnel answers on a connection that was kept alive."""
        try:
            self.kept.request("GET", "/", headers={"Host": self.host})
            answer = self.kept.getresponse()
            return (answer.status, answer.read()) == (200, b"hello")
        except (OSError, http.client.HTTPException):
            self.kept.close()
            return False

    def ask_anew(self) -> bool:
        request = Request(f"http://{self.place}/", headers={"Host": self.host})
        return answers(request)

    def assert_cut_off(self) -> None:
        soon(lambda: not self.ask_again(), "the kept connection still answers")
        assert not self.ask_anew()
        assert ends(self.websocket)

    def assert_served(self) -> None:
        assert self.ask_again()
        assert self.ask_anew()
        assert echoes(self.websocket)


def answers(request: str | Request) -> bool:
    try:
        with urlopen(request, timeout=30) as answer:
            content: bytes = answer.read()
            return content == b"hello"
    except HTTPError as error:
        error.close()
        return False
    except OSError:
        return False


def echoes(stream: socket.socket) -> bool:
    stream.sendall(b"ping\n")
    return stream.recv(5) == b"ping\n"


def ends(stream: socket.socket) -> bool:
    """Whether a stream ends by itself."""
    try:
        return stream.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


@contextlib.contextmanager
def refused_with(code: str) -> Iterator[None]:
    with pytest.raises(ginnel.ServerError) as caught:
        yield
    assert code in str(caught.value.details)


def token(credential: Credential) -> str:
    assert credential.token is not None
    return credential.token


class Owner:
    """A bot user with a credential, and what can be done to it."""

    def __init__(self, service: ginnel.Service, remote: ginnel.RemoteClient) -> None:
        self.service, self.remote = service, remote
        self.before = service.snapshot()
        self.bot: BotUser = remote.bot_users.create(name="ci")
        self.credential = remote.credentials.create(owner_id=self.bot.id)
        self.token = token(self.credential)

    def delete_credential(self) -> None:
        self.remote.credentials.delete(self.credential.id)

    def switch_bot_off(self) -> None:
        self.remote.bot_users.update(self.bot.id, active=False)

    def delete_bot(self) -> None:
        self.remote.bot_users.delete(self.bot.id)

    def restore(self) -> None:
        self.service.restore(self.before)

    def narrow_to_nothing(self) -> None:
        self.remote.credentials.update(self.credential.id, acl=["bind:nothing.test"])


@pytest.fixture
def owner(service: ginnel.Service, remote: ginnel.RemoteClient) -> Owner:
    return Owner(service, remote)


REVOCATIONS = ["delete_credential", "switch_bot_off", "delete_bot", "restore"]


@pytest.mark.parametrize("revoke", REVOCATIONS)
def test_a_revoked_agent_serves_nobody_and_does_not_come_back(
    service: ginnel.Service,
    remote: ginnel.RemoteClient,
    owner: Owner,
    local: Local,
    visitors: Visitors,
    revoke: str,
) -> None:
    with (
        stopped_soon(service) as other,
        stopped_soon(service, authtoken=owner.token) as agent,
    ):
        here = agent.client()
        here.tunnels.start(
            addr=local.port, proto="http", name="web", subdomain="web", schemes=["http"]
        )
        tcp = here.tunnels.start(addr=local.port, proto="tcp", name="tcp")
        other.client().tunnels.start(
            addr=local.port, proto="http", name="web", subdomain="other", schemes=["http"]
        )
        visitor, stays = visitors.at(f"web.{BASE}"), visitors.at(f"other.{BASE}")
        stream = visitors.stream(tcp.public_url)
        assert echoes(stream)

        getattr(owner, revoke)()

        visitor.assert_cut_off()
        assert ends(stream)
        with pytest.raises(ConnectionRefusedError):
            visitors.stream(tcp.public_url)
        [session] = remote.tunnel_sessions.list()
        assert session.credential is not None
        assert session.credential.id != owner.credential.id
        soon(lambda: agent.state == "offline", "the agent has not given up")
        with pytest.raises(ginnel.ServerError):
            here.tunnels.start(addr=local.port, proto="http", name="more")
        with pytest.raises(ginnel.AgentError, match="ERR_NGROK_107"):
            ginnel.Agent(service, authtoken=owner.token)
        stays.assert_served()
        assert other.state == "online"


def test_the_addresses_of_a_revoked_agent_are_free_at_once(
    service: ginnel.Service, owner: Owner, local: Local, visitors: Visitors
) -> None:
    with stopped_soon(service, authtoken=owner.token) as agent, stopped_soon(service) as other:
        agent.client().tunnels.start(
            addr=local.port, proto="http", name="web", subdomain="web", schemes=["http"]
        )

        owner.delete_credential()

        other.client().tunnels.start(
            addr=local.port, proto="http", name="web", subdomain="web", schemes=["http"]
        )
        visitors.at(f"web.{BASE}").assert_served()


def test_an_address_that_waits_for_a_revoked_agent_is_free_at_once(
    service: ginnel.Service, owner: Owner, local: Local, visitors: Visitors
) -> None:
    with stopped_soon(service, authtoken=owner.token) as agent:
        agent.client().tunnels.start(
            addr=local.port, proto="http", name="web", subdomain="web", schemes=["http"]
        )

    owner.switch_bot_off()

    with stopped_soon(service) as other:
        other.client().tunnels.start(
            addr=local.port, proto="http", name="web", subdomain="web", schemes=["http"]
        )
        visitors.at(f"web.{BASE}").assert_served()


def test_a_bot_that_is_switched_on_again_may_come_again(
    service: ginnel.Service,
    remote: ginnel.RemoteClient,
    owner: Owner,
    local: Local,
    visitors: Visitors,
) -> None:
    with stopped_soon(service, authtoken=owner.token) as agent:
        owner.switch_bot_off()
        soon(lambda: agent.state == "offline", "the agent has not given up")

    remote.bot_users.update(owner.bot.id, active=True)

    with stopped_soon(service, authtoken=owner.token) as agent:
        agent.client().tunnels.start(
            addr=local.port, proto="http", name="web", subdomain="web", schemes=["http"]
        )
        visitors.at(f"web.{BASE}").assert_served()


def test_what_does_not_touch_the_right_of_an_agent_leaves_it_alone(
    service: ginnel.Service,
    remote: ginnel.RemoteClient,
    owner: Owner,
    local: Local,
    visitors: Visitors,
) -> None:
    with stopped_soon(service, authtoken=owner.token) as agent:
        agent.client().tunnels.start(
            addr=local.port, proto="http", name="web", subdomain="web", schemes=["http"]
        )
        visitor = visitors.at(f"web.{BASE}")

        remote.credentials.update(owner.credential.id, description="new", acl=[f"bind:*.{BASE}"])
        remote.bot_users.update(owner.bot.id, name="renamed")
        remote.credentials.delete(remote.credentials.create(owner_id=owner.bot.id).id)
        service.restore(service.snapshot())

        visitor.assert_served()
        [session] = remote.tunnel_sessions.list()
        assert agent.client().status().session is not None
        assert session.credential is not None
        assert session.credential.id == owner.credential.id


def test_a_narrower_access_list_stops_what_it_does_not_allow(
    service: ginnel.Service,
    remote: ginnel.RemoteClient,
    owner: Owner,
    local: Local,
    visitors: Visitors,
) -> None:
    with stopped_soon(service, authtoken=owner.token) as agent:
        here = agent.client()
        for name in ("one", "two"):
            here.tunnels.start(
                addr=local.port, proto="http", name=name, subdomain=name, schemes=["http"]
            )
        tcp = here.tunnels.start(addr=local.port, proto="tcp", name="tcp")
        one, two = visitors.at(f"one.{BASE}"), visitors.at(f"two.{BASE}")
        stream = visitors.stream(tcp.public_url)
        assert echoes(stream)

        remote.credentials.update(owner.credential.id, acl=[f"bind:two.{BASE}"])

        one.assert_cut_off()
        assert ends(stream)
        two.assert_served()
        soon(lambda: [it.name for it in here.tunnels.list()] == ["two"], "the agent was not told")
        [tunnel] = remote.tunnels.list()
        assert tunnel.public_url is not None
        assert "two" in tunnel.public_url
        with refused_with("ERR_NGROK_600"):
            here.tunnels.start(
                addr=local.port, proto="http", name="one", subdomain="one", schemes=["http"]
            )

        remote.credentials.update(owner.credential.id, acl=[])

        here.tunnels.start(
            addr=local.port, proto="http", name="one", subdomain="one", schemes=["http"]
        )
        visitors.at(f"one.{BASE}").assert_served()
        two.assert_served()
        assert agent.state == "online"


def test_a_narrower_access_list_stops_labeled_tunnels(
    service: ginnel.Service,
    remote: ginnel.RemoteClient,
    owner: Owner,
    local: Local,
    visitors: Visitors,
) -> None:
    for app in ("one", "two"):
        group = remote.backends.tunnel_group.create(labels={"app": app})
        edge = remote.edges.https.create(hostports=[f"{app}.test:80"])
        remote.edges.https.routes.create(
            edge.id, match_type="path_prefix", match="/", backend={"backend_id": group.id}
        )
    with stopped_soon(service, authtoken=owner.token) as agent:
        here = agent.client()
        for app in ("one", "two"):
            here.tunnels.start(addr=local.port, name=app, labels=[f"app={app}"])
        one, two = visitors.at("one.test"), visitors.at("two.test")

        remote.credentials.update(owner.credential.id, acl=["bind:app=two"])

        one.assert_cut_off()
        two.assert_served()
        soon(lambda: [it.name for it in here.tunnels.list()] == ["two"], "the agent was not told")
        with refused_with("ERR_NGROK_600"):
            here.tunnels.start(addr=local.port, name="one", labels=["app=one"])


def test_an_address_that_is_no_longer_allowed_is_not_given_back(
    service: ginnel.Service, remote: ginnel.RemoteClient, owner: Owner, local: Local
) -> None:
    with stopped_soon(service, authtoken=owner.token) as agent:
        agent.client().tunnels.start(
            addr=local.port, proto="http", name="web", subdomain="web", schemes=["http"]
        )
        [session] = remote.tunnel_sessions.list()
        # Sessions and changes of the access list cross each other.
        stopping = threading.Thread(target=remote.tunnel_sessions.restart, args=(session.id,))
        stopping.start()
        owner.narrow_to_nothing()
        stopping.join()

        visitor = Request(f"{service.http_url}", headers={"Host": f"web.{BASE}"})
        soon(lambda: len(remote.tunnel_sessions.list().to_list()) == 1, "the agent is gone")
        soon(lambda: not answers(visitor), "the tunnel still answers")
        assert remote.tunnels.list().to_list() == []


def test_keys_of_a_bot_are_refused_at_once(
    service: ginnel.Service, remote: ginnel.RemoteClient
) -> None:
    for revoke in ("switch_off", "delete"):
        bot = remote.bot_users.create(name=revoke)
        key = remote.api_keys.create(owner_id=bot.id)
        with ginnel.RemoteClient(key.token, base_url=service.url) as caller:
            # Twice: the second time the service remembers who calls.
            for _ in range(2):
                caller.api_keys.list().first()

            if revoke == "delete":
                remote.bot_users.delete(bot.id)
            else:
                remote.bot_users.update(bot.id, active=False)

            with pytest.raises(ginnel.AuthenticationError):
                caller.api_keys.list().first()


def test_a_credential_deleted_while_agents_come_leaves_none_behind(
    service: ginnel.Service, remote: ginnel.RemoteClient, local: Local
) -> None:
    for turn in range(20):
        credential = remote.credentials.create()

        def come(credential: Credential = credential) -> None:
            with (
                contextlib.suppress(ginnel.GinnelError),
                stopped_soon(service, authtoken=token(credential), web_addr=None) as agent,
            ):
                soon(lambda: agent.state == "offline", "the agent stays")

        coming = threading.Thread(target=come)
        coming.start()
        time.sleep(0.001 * turn)
        remote.credentials.delete(credential.id)
        coming.join()

        soon(lambda: not remote.tunnel_sessions.list().to_list(), "no session is left behind")


def test_an_access_list_has_256_entries_at_most(remote: ginnel.RemoteClient) -> None:
    entries = [f"bind:host-{number}.test" for number in range(256)]
    made = remote.credentials.create(acl=entries)
    assert remote.credentials.get(made.id).acl == entries

    too_many = [*entries, "bind:one-more.test"]
    with pytest.raises(ginnel.BadRequestError, match="acl: has 257 entries, the limit is 256"):
        remote.credentials.create(acl=too_many)
    with pytest.raises(ginnel.BadRequestError, match="acl: has 257 entries, the limit is 256"):
        remote.credentials.update(made.id, acl=too_many)

    assert remote.credentials.get(made.id).acl == entries
