"""A visitor with cookies, who follows no redirect that a test does not follow."""

from __future__ import annotations

import http.client
import re
import ssl
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, build_opener

import ginnel

BROWSER = {"Accept": "text/html,*/*;q=0.8", "Sec-Fetch-Mode": "navigate"}


@dataclass
class Answer:
    """What a visitor gets."""

    status: int
    headers: http.client.HTTPMessage
    body: str

    @property
    def location(self) -> str:
        return self.headers["Location"] or ""


class Still(HTTPRedirectHandler):
    """Follows nothing."""

    def http_error_302(self, *arguments: object) -> object:
        return arguments[1]


@dataclass
class Visitor:
    """A browser with its cookies, at one host of a service."""

    service: ginnel.Service
    host: str
    secure: bool = True
    cookies: dict[str, str] = field(default_factory=dict)

    def go(self, target: str = "/", method: str = "GET", **headers: str) -> Answer:
        """Asks as a browser that shows a page."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.send(target, method, {**BROWSER, **named})

    def send(
        self, target: str, method: str = "GET", headers: dict[str, str] | None = None
    ) -> Answer:
        """Asks with these headers and the cookies that there are."""
        url = self.service.https_url if self.secure else self.service.http_url
        assert url is not None
        address = urlsplit(url)
        assert address.hostname
        assert address.port
        connection: http.client.HTTPConnection
        if self.secure:
            context = ssl._create_unverified_context()
            connection = http.client.HTTPSConnection(
                address.hostname, address.port, context=context, timeout=20
            )
        else:
            connection = http.client.HTTPConnection(address.hostname, address.port, timeout=20)
        pairs = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        sent = {**({"Cookie": pairs} if pairs else {}), **(headers or {})}
        connection.putrequest(method, target, skip_host=True)
        connection.putheader("Host", self.host)
        for name, value in sent.items():
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        answer = Answer(response.status, response.headers, response.read().decode())
        connection.close()
        self.keep(answer)
        return answer

    def keep(self, answer: Answer) -> None:
        """Keeps the cookies of an answer as a browser does."""
        for line in answer.headers.get_all("Set-Cookie") or []:
            pair, *attributes = (part.strip() for part in line.split(";"))
            name, _, value = pair.partition("=")
            said = {part.partition("=")[0].lower(): part.partition("=")[2] for part in attributes}
            assert "httponly" in said
            assert said["samesite"] == "Lax"
            if name.startswith("__Host-"):
                assert "secure" in said
                assert "domain" not in said
                assert said["path"] == "/"
            if said.get("max-age") == "0":
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = value

    @property
    def session(self) -> list[str]:
        """The names of the cookies of a session."""
        return [name for name in self.cookies if re.search(r"-s\d$", name)]

    def begin(self, target: str = "/") -> str:
        """Wants a page, and logs in at the issuer; gives where that sends the visitor back to."""
        answer = self.go(target)
        assert answer.status == 302, answer.body
        return self.ask(answer.location)

    def ask(self, url: str) -> str:
        """Logs in at the issuer; gives the path that it sends the visitor back to."""
        with build_opener(Still()).open(url) as response:
            back = urlsplit(response.headers["Location"])
        assert back.hostname == self.host.partition(":")[0]
        return f"{back.path}?{back.query}"

    def log_in(self, target: str = "/") -> Answer:
        """Logs in, and comes back; gives what the callback answers."""
        return self.go(self.begin(target))

    def enter(self, target: str = "/") -> Answer:
        """Logs in; gives the page, or what is said in its place."""
        back = self.log_in(target)
        return self.go(target) if back.status == 302 else back


def seconds_of_a_session(visitor: Visitor, pause: float) -> float:
    """Logs in, and asks with pauses until the visitor is to log in again; how long that took.

    Everything may take longer on a slow machine, so only the bound below is sharp.
    """
    began = time.monotonic()
    assert visitor.log_in().status == 302
    while visitor.go().status == 200:
        time.sleep(pause)
    return time.monotonic() - began
