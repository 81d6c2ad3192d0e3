"""Runs agents and services of two builds against each other, with every option and real traffic.

    exchange.py OLD_PACKAGES NEW_PACKAGES

Each argument is a folder with the package `ginnel`. All four pairs of agent and service must behave
as the pair of the old build does.
"""

import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import trustme

SERVICE = """
import json, sys, ginnel
service = ginnel.Service(tls_endpoints=True)
print(json.dumps([service.agent_addr, service.authtoken, service.ca_pem]), flush=True)
sys.stdin.read()
service.stop()
"""
AGENT = """
import json, sys, ginnel
server, authtoken, ca = sys.argv[1:]
agent = ginnel.Agent(server_addr=server, authtoken=authtoken, ca=ca)
print(json.dumps(agent.url), flush=True)
sys.stdin.read()
agent.stop()
"""
#: Enough failures for a circuit breaker to trip.
FAILURES = 25


class Echo(BaseHTTPRequestHandler):
    """Responds with the headers of the request."""

    def do_GET(self) -> None:
        body = json.dumps({name.lower(): value for name, value in self.headers.items()}).encode()
        body += b" " * 2000
        self.send_response(500 if self.path == "/fail" else 200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("X-Local", "1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def serve_http() -> int:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def serve_bytes() -> int:
    """Starts a service that sends back what it receives first."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with connection:
            connection.sendall(connection.recv(4096))

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return int(listener.getsockname()[1])


def definitions(http: int, bytes_port: int, files: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Returns a tunnel for each option."""
    login = {
        "client_id": "id",
        "client_secret": "s",
        "allow_emails": ["a@b.test"],
        "scopes": ["email"],
    }
    rules = {"on_http_request": [{"actions": [{"type": "deny", "config": {"status_code": 418}}]}]}
    bytes_rules = {"on_tcp_connect": [{"actions": [{"type": "deny"}]}]}
    pair = {"crt": files["crt"], "key": files["key"]}
    options: dict[str, dict[str, Any]] = {
        "plain": {},
        "basic_auth": {"basic_auth": ["ann:swordfish"]},
        "circuit_breaker": {"circuit_breaker": 0.5},
        "compression": {"compression": True},
        "request_header": {"request_header": {"add": ["X-A: 1", "X-A: 2"], "remove": ["X-Gone"]}},
        "response_header": {"response_header": {"add": ["X-B: 2"], "remove": ["X-Local"]}},
        "allowed": {"ip_restriction": {"allow_cidrs": ["127.0.0.0/8"]}},
        "denied": {"ip_restriction": {"deny_cidrs": ["127.0.0.0/8"]}},
        "user_agent_filter": {"user_agent_filter": {"deny": ["^bad"]}},
        "oauth": {"oauth": {"provider": "google", **login}},
        "oidc": {"oidc": {"issuer_url": "https://127.0.0.1:9", **login}},
        "verify_webhook": {"verify_webhook": {"provider": "github", "secret": "s"}},
        "websocket_tcp_converter": {"websocket_tcp_converter": True},
        "traffic_policy": {"traffic_policy": rules},
        "mutual_tls": {"schemes": ["https"], "mutual_tls_cas": files["cas"]},
        "wrong_policy": {"traffic_policy": "on_http_request: [{actions: [{type: nope}]}]"},
        "wrong_provider": {"oauth": {"provider": "nobody"}},
    }
    named = {
        name: {"proto": "http", "addr": http, "schemes": ["http"], **it}
        for name, it in options.items()
    }
    for name, more in {
        "tcp": {"proxy_proto": 1},
        "tcp_denied": {"ip_restriction": {"deny_cidrs": ["127.0.0.0/8"]}},
        "tcp_policy": {"traffic_policy": bytes_rules},
    }.items():
        named[name] = {"proto": "tcp", "addr": bytes_port, **more}
    for name, more in {
        "tls_edge": {"terminate_at": "edge", **pair},
        "tls_edge_of_service": {"terminate_at": "edge"},
        "tls_mutual": {"terminate_at": "edge", "mutual_tls_cas": files["cas"]},
        "tls_agent": {"terminate_at": "agent", **pair},
        "tls_agent_mutual": {"terminate_at": "agent", "mutual_tls_cas": files["cas"], **pair},
        "tls_upstream": {},
    }.items():
        named[name] = {"proto": "tls", "addr": bytes_port, **more}
    return named


def start(program: str, packages: str, *arguments: str) -> tuple[subprocess.Popen[str], Any]:
    """Starts a program with the package of a build; also returns what it prints first."""
    environment = {**os.environ, "PYTHONPATH": packages}
    command = [sys.executable, "-c", program, *arguments]
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    return process, json.loads(process.stdout.readline())


def call(agent: str, tunnel: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    connection = HTTPConnection(urlsplit(agent).netloc, timeout=30)
    connection.request(
        "POST", "/api/tunnels", json.dumps(tunnel), {"content-type": "application/json"}
    )
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def context(files: dict[str, str]) -> ssl.SSLContext:
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    if files:
        trusting.load_cert_chain(files["visitor"])
    return trusting


def visit(url: str, path: str, files: dict[str, str], **headers: str) -> object:
    """Returns what is observable of a response."""
    place = urlsplit(url).netloc
    secure = url.startswith("https")
    connection = (
        HTTPSConnection(place, timeout=30, context=context(files))
        if secure
        else HTTPConnection(place, timeout=30)
    )
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request("GET", path, headers={"user-agent": "test", **sent})
        response = connection.getresponse()
        body = response.read()
    except (OSError, HTTPException) as problem:
        return type(problem).__name__
    finally:
        connection.close()
    names = ["content-encoding", "x-b", "x-local", "www-authenticate"]
    shown = {name: response.getheader(name) for name in names}
    location = urlsplit(response.getheader("location") or "").netloc
    seen: dict[str, str] = {}
    if response.status == 200 and not shown["content-encoding"]:
        seen = json.loads(body)
    return [response.status, shown, location, seen.get("x-a"), seen.get("x-gone")]


def say(url: str, files: dict[str, str]) -> object:
    """Returns what a local service sends back to a visitor who speaks bytes."""
    place = urlsplit(url)
    try:
        with socket.create_connection((place.hostname, place.port), timeout=30) as plain:
            stream = plain
            if url.startswith("tls"):
                stream = context(files).wrap_socket(plain, server_hostname="localhost")
            with stream:
                stream.sendall(b"hello")
                heard = stream.recv(4096)
    except OSError as problem:
        return type(problem).__name__ if not isinstance(problem, ssl.SSLError) else "SSLError"
    return [heard.startswith(b"PROXY TCP4 127.0.0.1"), heard.endswith(b"hello")]


def behaviour(
    service: str, agent: str, files: dict[str, str], ports: tuple[int, int]
) -> dict[str, Any]:
    """Returns what visitors see of each tunnel of an agent and a service."""
    service_process, (address, authtoken, ca) = start(SERVICE, service)
    Path(files["ca"]).write_text(ca)
    agent_process, api = start(AGENT, agent, address, authtoken, files["ca"])
    seen: dict[str, Any] = {}
    try:
        for name, definition in definitions(*ports, files).items():
            status, tunnel = call(api, {"name": name, **definition})
            if status != 201:
                seen[name] = [status, tunnel.get("msg"), tunnel.get("details")]
                continue
            url = tunnel["public_url"]
            if definition["proto"] != "http":
                seen[name] = [say(url, {}), say(url, files)]
                continue
            fails = [
                visit(url, "/fail", {}) for _ in range(FAILURES if name == "circuit_breaker" else 1)
            ]
            ann = "Basic YW5uOnN3b3JkZmlzaA=="
            seen[name] = [
                visit(url, "/", {}),
                visit(url, "/", files, authorization=ann, accept_encoding="gzip", x_gone="1"),
                visit(url, "/", {}, user_agent="bad"),
                fails[-1],
            ]
    finally:
        for process in (agent_process, service_process):
            process.communicate("", timeout=60)
    return seen


def main() -> int:
    packages = {"old": sys.argv[1], "new": sys.argv[2]}
    ports = (serve_http(), serve_bytes())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        authority = trustme.CA()
        own, visitor = authority.issue_cert("localhost"), authority.issue_cert("visitor.test")
        paths = {key: folder / f"{key}.pem" for key in ("ca", "cas", "crt", "key", "visitor")}
        authority.cert_pem.write_to_path(paths["cas"])
        own.cert_chain_pems[0].write_to_path(paths["crt"])
        own.private_key_pem.write_to_path(paths["key"])
        paths["key"].chmod(0o600)
        visitor.private_key_and_cert_chain_pem.write_to_path(paths["visitor"])
        files = {key: str(path) for key, path in paths.items()}
        expected = behaviour(packages["old"], packages["old"], files, ports)
        print(json.dumps(expected, indent=1))
        failed = False
        for service, agent in [("new", "old"), ("old", "new"), ("new", "new")]:
            seen = behaviour(packages[service], packages[agent], files, ports)
            others = [key for key in expected if seen.get(key) != expected[key]]
            alike = f"{len(expected) - len(others)} of {len(expected)} tunnels behave as before"
            print(f"{agent} agent, {service} service: {alike}")
            for key in others:
                print(f"  {key}: was {expected[key]}\n  {key}: is  {seen.get(key)}")
            failed = failed or bool(others)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
