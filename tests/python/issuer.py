"""An issuer of OpenID Connect that does what a test tells it, right or wrong."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric import padding, rsa

CLIENT_ID, CLIENT_SECRET = "a client", "a secret:+/"


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    return encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))


@dataclass
class Key:
    """What the issuer signs with."""

    name: str | None
    private: rsa.RSAPrivateKey = field(
        default_factory=lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048)
    )

    def published(self) -> dict[str, str]:
        public = self.private.public_key().public_numbers()
        named = {"kid": self.name} if self.name else {}
        return {"kty": "RSA", "use": "sig", "n": number(public.n), "e": number(public.e), **named}

    def sign(self, claims: dict[str, Any], algorithm: str = "RS256") -> str:
        header = {"alg": algorithm, **({"kid": self.name} if self.name else {})}
        message = ".".join(encoded(json.dumps(part).encode()) for part in (header, claims))
        if algorithm == "none":
            return f"{message}."
        if algorithm == "HS256":
            mac = hmac.HMAC(self.published()["n"].encode(), hashes.SHA256())
            mac.update(message.encode())
            return f"{message}.{encoded(mac.finalize())}"
        signature = self.private.sign(message.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{message}.{encoded(signature)}"


class Issuer:
    """Logs everybody in as `claims` say, without asking."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        """What it speaks TLS with."""
        self.claims: dict[str, Any] = {
            "sub": "248289761001",
            "name": "Ada Lovelace",
            "email": "ada@example.com",
            "email_verified": True,
        }
        self.userinfo: dict[str, Any] | None = {}
        """What userinfo says beside the subject; there is none where this is none."""
        self.token: Callable[[dict[str, Any]], str] = lambda claims: self.key.sign(claims)
        """Makes an ID token."""
        self.keys = [Key("one")]
        self.metadata: dict[str, Any] = {}
        """What it says of itself beside what is right."""
        self.answers: dict[str, Callable[[Call], None]] = {}
        """What it does in place of what is right, by path."""
        self.parameters: dict[str, str] = {}
        """What it sends visitors back with, beside what is right."""
        self.expires_in: int | None = 3600
        self.refreshes = True
        self.calls: Counter[str] = Counter()
        self.codes: dict[str, dict[str, str]] = {}
        self.refresh_tokens: set[str] = set()
        self.access_tokens: set[str] = set()
        self.stopped = False
        self.reused = 0
        """How often a refresh token was used that had been replaced."""

    @property
    def key(self) -> Key:
        return self.keys[-1]

    def __enter__(self) -> Self:
        handler = type("Handler", (Call,), {"issuer": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        scheme = "http"
        if self.tls:
            scheme = "https"
            # Handshakes are for the threads of the connections.
            self.server.socket = self.tls.wrap_socket(
                self.server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.url = f"{scheme}://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.stopped = True
        self.server.shutdown()
        self.server.server_close()

    def id_token(self, nonce: str | None) -> str:
        now = int(time.time())
        claims = {
            "iss": self.url,
            "aud": CLIENT_ID,
            "iat": now,
            "exp": now + 300,
            **({"nonce": nonce} if nonce else {}),
            **self.claims,
        }
        return self.token(claims)

    def tokens(self, nonce: str | None) -> dict[str, Any]:
        access, refresh = secrets.token_urlsafe(), secrets.token_urlsafe()
        self.access_tokens.add(access)
        given = {"access_token": access, "token_type": "Bearer", "id_token": self.id_token(nonce)}
        if self.expires_in is not None:
            given["expires_in"] = str(self.expires_in)
        if self.refreshes:
            self.refresh_tokens.add(refresh)
            given["refresh_token"] = refresh
        return given


class Call(BaseHTTPRequestHandler):
    """One call of somebody."""

    protocol_version = "HTTP/1.1"
    issuer: Issuer

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self.serve()

    def do_POST(self) -> None:
        self.serve()

    def serve(self) -> None:
        path = urlsplit(self.path).path
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.form = dict(parse_qsl(body.decode()))
        self.issuer.calls[path] += 1
        if self.issuer.stopped:
            self.close_connection = True
            return
        if answer := self.issuer.answers.get(path):
            answer(self)
            return
        known = {
            "/.well-known/openid-configuration": self.discovery,
            "/jwks": self.jwks,
            "/authorize": self.authorize,
            "/token": self.exchange,
            "/userinfo": self.userinfo,
        }
        known.get(path, lambda: self.say(404, {}))()

    def say(self, status: int, content: Any, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def discovery(self) -> None:
        url = self.issuer.url
        metadata = {
            "issuer": url,
            "authorization_endpoint": f"{url}/authorize",
            "token_endpoint": f"{url}/token",
            "jwks_uri": f"{url}/jwks",
            **(
                {"userinfo_endpoint": f"{url}/userinfo"} if self.issuer.userinfo is not None else {}
            ),
            **self.issuer.metadata,
        }
        if self.issuer.userinfo is not None:
            metadata["userinfo_endpoint"] = f"{url}/userinfo"
        self.say(200, metadata)

    def jwks(self) -> None:
        self.say(200, {"keys": [key.published() for key in self.issuer.keys]})

    def authorize(self) -> None:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        assert asked["response_type"] == "code"
        assert asked["client_id"] == CLIENT_ID
        assert asked["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe()
        self.issuer.codes[code] = asked
        back = {"code": code, "state": asked["state"], **self.issuer.parameters}
        self.say(302, {}, Location=f"{asked['redirect_uri']}?{urlencode(back)}")

    def exchange(self) -> None:
        id_, secret = (parse_qsl(f"x={part}")[0][1] for part in self.basic())
        assert (id_, secret) == (CLIENT_ID, CLIENT_SECRET)
        if self.form["grant_type"] == "refresh_token":
            token = self.form["refresh_token"]
            if token not in self.issuer.refresh_tokens:
                self.issuer.reused += 1
                self.say(400, {"error": "invalid_grant"})
                return
            self.issuer.refresh_tokens.remove(token)
            self.say(200, self.issuer.tokens(None))
            return
        asked = self.issuer.codes.pop(self.form["code"], None)
        challenge = encoded(hashlib.sha256(self.form["code_verifier"].encode()).digest())
        if (
            asked is None
            or asked["code_challenge"] != challenge
            or asked["redirect_uri"] != self.form["redirect_uri"]
        ):
            self.say(400, {"error": "invalid_grant"})
            return
        self.say(200, self.issuer.tokens(asked["nonce"]))

    def basic(self) -> list[str]:
        scheme, _, pair = self.headers["Authorization"].partition(" ")
        assert scheme == "Basic"
        return base64.b64decode(pair).decode().split(":", 1)

    def userinfo(self) -> None:
        token = self.headers["Authorization"].removeprefix("Bearer ")
        if token not in self.issuer.access_tokens:
            self.say(401, {"error": "invalid_token"})
            return
        assert self.issuer.userinfo is not None
        self.say(200, {"sub": self.issuer.claims["sub"], **self.issuer.userinfo})
