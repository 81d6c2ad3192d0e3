#!/usr/bin/env python3
"""Edges of an embedded service beside nginx, on loopback, in one interleaved run; see README.md."""

import argparse
import json
import os
import pathlib
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import ginnel

HOST = "app.example.test"
CONF = """
worker_processes 1; pid {work}/{name}.pid; error_log {work}/{name}.log; daemon off; user root;
events {{ worker_connections 4096; }}
http {{ access_log off; keepalive_requests 100000000; {servers} }}
"""
UPSTREAM = 'server {{ listen 127.0.0.1:{port}; location / {{ return 200 "{body}"; }} }}'
PROXY = """
upstream u {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 100000000; }}
server {{ listen 127.0.0.1:{plain}; listen 127.0.0.1:{tls} ssl http2;
  ssl_certificate {work}/cert.pem; ssl_certificate_key {work}/key.pem;
  location / {{ proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection ""; }} }}
"""
POLICY = {
    "inbound": [
        {
            "expressions": [f"req.url.path.startsWith('/closed-{number}')"],
            "actions": [{"type": "deny"}],
        }
        for number in range(3)
    ]
    + [
        {
            "expressions": ["req.method == 'DELETE'", "conn.client_ip == '192.0.2.1'"],
            "actions": [{"type": "deny"}],
        },
        {"actions": [{"type": "add-headers", "config": {"headers": {"x-via": "edge"}}}]},
    ]
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def nginx(work: pathlib.Path, name: str, servers: str) -> subprocess.Popen:
    """An nginx that has started."""
    path = work / f"{name}.conf"
    path.write_text(CONF.format(work=work, name=name, servers=servers))
    program = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
    process = subprocess.Popen([program, "-c", path, "-p", work], stderr=subprocess.DEVNULL)
    port = int(re.search(r"127\.0\.0\.1:(\d+)[ ;]", servers.split("listen")[1])[1])
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process
        time.sleep(0.02)
    raise SystemExit(f"nginx did not start; see {work}/{name}.log")


def family(pid: int) -> list[int]:
    """A process and its children."""
    found = [pid]
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            if parent == pid:
                found.append(int(entry.name))
    return found


def cpu(pids: list[int]) -> float:
    """The processor time of processes so far, in seconds."""
    ticks = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def wrk(url: str, host: str, secs: float, pids: list[int], script: str) -> dict[str, float]:
    before = cpu(pids)
    command = ["wrk", "-t1", "-c32", f"-d{secs}s", "--latency", "-H", f"Host: {host}"]
    command += ["-s", script] if script else []
    # The user agent filter turns away whoever does not name itself.
    said = subprocess.check_output([*command, "-H", "User-Agent: wrk", url], text=True)
    used = cpu(pids) - before
    if "Non-2xx" in said or "Socket errors" in said:
        raise SystemExit(f"{url}: {said}")
    requests = int(re.search(r"(\d+) requests in", said)[1])
    value, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", said).groups()
    scale = {"us": 1, "ms": 1e3, "s": 1e6}[unit]
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1])
    return {"rate": rate, "p99": float(value) * scale, "cpu": used * 1e6 / requests}


def h2load(url: str, host: str, secs: float, pids: list[int]) -> dict[str, float]:
    """10 connections of HTTP/2 with 32 requests under way on each."""
    before = cpu(pids)
    command = ["h2load", "-t1", "-c10", "-m32", f"-D{secs:g}", "-H", f":authority: {host}"]
    said = subprocess.check_output([*command, "-H", "user-agent: h2load", url], text=True)
    used = cpu(pids) - before
    good = int(re.search(r"status codes: (\d+) 2xx", said)[1])
    if not good or "0 failed, 0 errored, 0 timeout" not in said:
        raise SystemExit(f"{url}: {said}")
    rate = float(re.search(r"finished in [\d.]+\w+, ([\d.]+) req/s", said)[1])
    # Of the times of requests h2load gives no percentile.
    value, unit = re.search(r"time for request:\s+\S+\s+([\d.]+)(us|ms|s)", said).groups()
    scale = {"us": 1, "ms": 1e3, "s": 1e6}[unit]
    return {"rate": rate, "p99": float(value) * scale, "cpu": used * 1e6 / good}


def handshakes(url: str, option: str, secs: float, pids: list[int]) -> dict[str, float]:
    """TLS handshakes with one request each, by two clients; `-reuse` resumes one session."""
    before = cpu(pids)
    address = re.search(r"//([^/]+)", url)[1]
    command = ["openssl", "s_time", "-connect", address, option, "-www", "/", "-time"]
    command.append(str(max(1, round(secs))))
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    clients = [subprocess.Popen(command, **pipe) for _ in range(2)]
    said = [client.communicate()[0] for client in clients]
    used = cpu(pids) - before
    counts = [re.search(r"(\d+) connections in ([\d.]+) real seconds", text) for text in said]
    if not all(counts):
        raise SystemExit(f"{url}: {said}")
    count = sum(int(found[1]) for found in counts)
    return {"rate": count / max(1, round(secs)), "p99": float("nan"), "cpu": used * 1e6 / count}


def edge(remote: ginnel.RemoteClient, host: str, backend: str, **modules: object) -> tuple[str, str]:
    """An HTTPS edge with one route."""
    made = remote.edges.https.create(hostports=[f"{host}:80", f"{host}:443"])
    route = remote.edges.https.routes.create(
        made.id, match_type="path_prefix", match="/", backend={"backend_id": backend}, **modules
    )
    return made.id, route.id


def crowd(remote: ginnel.RemoteClient, backend: str) -> None:
    """1,000 edges with 10 routes each."""
    for number in range(1000):
        made = remote.edges.https.create(hostports=[f"x{number}.example.test:443"])
        for path in range(10):
            remote.edges.https.routes.create(
                made.id,
                match_type="path_prefix",
                match=f"/{path}",
                backend={"backend_id": backend},
                policy=POLICY if path == 0 else None,
            )


def serve(upstream: int, metrics: bool) -> None:
    """Runs two services until standard input ends; prints where they are."""
    # Builds that do not know the option can be compared as well.
    watched = {"admin_addr": "127.0.0.1:0"} if metrics else {}
    with ginnel.Service(**watched) as service, ginnel.Service(**watched) as crowded:
        modules = {"policy": POLICY, "user_agent_filter": {"deny": ["bad(bot|crawler)"]}}
        for one in (service, crowded):
            remote = one.client()
            backend = remote.backends.static.create(address=f"127.0.0.1:{upstream}").id
            edge(remote, HOST, backend)
            policy = remote.ip_policies.create()
            remote.ip_policy_rules.create(
                cidr="127.0.0.0/8", action="allow", ip_policy_id=policy.id
            )
            restriction = {"ip_policy_ids": [policy.id]}
            edge(remote, f"p.{HOST}", backend, ip_restriction=restriction, **modules)
        crowd(crowded.client(), backend)
        urls = {"http": service.http_url, "https": service.https_url, "many": crowded.http_url}
        print(json.dumps(urls), flush=True)
        sys.stdin.read()


class Build:
    """The services of one build of ginnel, in a process of their own."""

    def __init__(self, python: str, upstream: int, metrics: bool = False) -> None:
        command = [python, __file__, "--serve", str(upstream)]
        command += ["--metrics"] if metrics else []
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.urls = json.loads(self.process.stdout.readline())

    def targets(self, prefix: str) -> dict[str, tuple[str, str, list[int]]]:
        # wrk asks for the host of its URL, so the resolver must know it; the header is enough here,
        # because a client that names an address sends no name in TLS.
        pids = [self.process.pid]
        return {
            f"{prefix}plain": (self.urls["http"] + "/", HOST, pids),
            f"{prefix}policed": (self.urls["http"] + "/", f"p.{HOST}", pids),
            f"{prefix}many": (self.urls["many"] + "/", HOST, pids),
            f"{prefix}tls": (self.urls["https"] + "/", HOST, pids),
            f"{prefix}policed-tls": (self.urls["https"] + "/", f"p.{HOST}", pids),
        }

    def stop(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def compare(
    rounds: int,
    secs: float,
    only: list[str],
    before: str | None,
    file: pathlib.Path | None,
    metrics: bool,
) -> None:
    work = pathlib.Path(tempfile.mkdtemp(prefix="edges-"))
    upstream, plain, tls = free_port(), free_port(), free_port()
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        + ["-nodes", "-subj", f"/CN={HOST}", "-keyout", work / "key.pem", "-out", work / "cert.pem"],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    behind = nginx(work, "upstream", UPSTREAM.format(port=upstream, body="x" * 64))
    servers = PROXY.format(upstream=upstream, plain=plain, tls=tls, work=work)
    proxy = nginx(work, "proxy", servers)
    builds = {"": Build(sys.executable, upstream, metrics)}
    if before:
        builds["before-"] = Build(before, upstream)
    targets = {"nginx": (f"http://127.0.0.1:{plain}/", HOST, family(proxy.pid))}
    targets["nginx-tls"] = (f"https://127.0.0.1:{tls}/", HOST, family(proxy.pid))
    for prefix, build in builds.items():
        targets |= build.targets(prefix)
    # The same with the body of a webhook.
    post = work / "post.lua"
    post.write_text('wrk.method = "POST"\nwrk.body = string.rep("x", 1024)\n')
    scripts = dict.fromkeys(targets, "") | {f"{name}-post": str(post) for name in targets}
    http2 = {f"{name}-h2": target for name, target in targets.items() if name.endswith("tls")}
    ends = [name for name in targets if name.endswith("tls") and "policed" not in name]
    shaken = {f"{name}-{kind}": targets[name] for name in ends for kind in ("full", "resumed")}
    targets |= {f"{name}-post": target for name, target in targets.items()} | http2 | shaken
    chosen = [name for name in targets if not only or name.removeprefix("before-") in only]
    results: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
    for _ in range(rounds):
        for name in random.sample(chosen, len(chosen)):
            url, host, pids = targets[name]
            if name.endswith(("-full", "-resumed")):
                option = "-new" if name.endswith("-full") else "-reuse"
                results[name].append(handshakes(url, option, secs, pids))
            elif name in http2:
                results[name].append(h2load(url, host, secs, pids))
            else:
                results[name].append(wrk(url, host, secs, pids, scripts[name]))
    for build in builds.values():
        build.stop()
    proxy.terminate()
    behind.terminate()
    if file:
        file.write_text(json.dumps(results))
    report(results)


def report(results: dict[str, list[dict[str, float]]]) -> None:
    def median(name: str, field: str) -> float:
        return statistics.median(one[field] for one in results[name])

    def of_before(name: str) -> str:
        """The median ratio of the same rounds to the other build."""
        pairs = zip(results[name], results.get(f"before-{name}", []))
        ratios = [one["rate"] / other["rate"] for one, other in pairs]
        return f"{statistics.median(ratios):.3f}" if ratios else ""

    print("| target | requests/s | of nginx | of before | p99 us | of nginx | CPU us |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in results:
        kind, what = re.fullmatch(r"(.*?)(-post|-h2|-full|-resumed)?", name).groups(default="")
        peer = ("nginx-tls" if kind.endswith("tls") else "nginx") + what
        peer = peer if peer in results else name
        rate, late = median(name, "rate"), median(name, "p99")
        print(
            f"| {name} | {rate:,.0f} | {rate / median(peer, 'rate'):.2f} | {of_before(name)} "
            f"| {late:,.0f} | {late / median(peer, 'p99'):.2f} | {median(name, 'cpu'):.1f} |"
        )


def live() -> None:
    """How soon a change acts on traffic."""
    with ginnel.Service(https_port=None) as service:
        remote = service.client()
        backend = remote.backends.http_response.create(body="before").id
        edge_id, route_id = edge(remote, HOST, backend)
        crowd(remote, backend)
        request = urllib.request.Request(service.http_url, headers={"Host": HOST})
        took = []
        for number in range(200):
            body = f"rule {number}"
            action = {"type": "custom-response", "config": {"body": body}}
            start = time.perf_counter()
            remote.edges.https.routes.policy.replace(edge_id, route_id, inbound=[{"actions": [action]}])
            while urllib.request.urlopen(request).read().decode() != body:
                pass
            took.append((time.perf_counter() - start) * 1e3)
        took.sort()
        print(f"change and first answer by it: median {took[100]:.1f} ms, most {took[-1]:.1f} ms")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--secs", type=int, default=3)
    arguments.add_argument("--only", nargs="*", default=[], help="the targets to visit")
    arguments.add_argument("--before", metavar="PYTHON", help="one with the build to compare with")
    arguments.add_argument("--json", type=pathlib.Path, help="a file for every sample")
    arguments.add_argument("--metrics", action="store_true", help="count requests for a scrape")
    arguments.add_argument("--live", action="store_true")
    arguments.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.live:
        live()
    elif chosen.serve:
        serve(chosen.serve, chosen.metrics)
    else:
        before = chosen.before or (sys.executable if chosen.metrics else None)
        compare(chosen.rounds, chosen.secs, chosen.only, before, chosen.json, chosen.metrics)


if __name__ == "__main__":
    main()
