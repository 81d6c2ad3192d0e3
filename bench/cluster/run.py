#!/usr/bin/env python3
"""A visitor at the node that has not got the agent, beside one at the node that has it; see README.md."""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).parents[2] / "tests/python"))

import postgres
from addresses import free_port

import ginnel

HOST = "app.cluster.test"
NGINX = """
worker_processes 1; pid {work}/nginx.pid; error_log {work}/nginx.log; daemon off;
events {{ worker_connections 4096; }}
http {{ access_log off; keepalive_requests 100000000; server {{ listen 127.0.0.1:{port};
  location / {{ return 200 "{body}"; }} }} }}
"""


@contextlib.contextmanager
def upstream(work: pathlib.Path):
    """An nginx that responds with 512 bytes; its port."""
    port, path = free_port(), work / "nginx.conf"
    path.write_text(NGINX.format(work=work, port=port, body="x" * 512))
    program = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
    process = subprocess.Popen([program, "-c", path, "-p", work], stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def node(store: str, name: str, work: pathlib.Path):
    """A `ginnel serve`; what it says of itself."""
    command = [sys.executable, "-m", "ginnel", "serve", "--store", store, "--node-name", name]
    command += ["--peer-addr", f"127.0.0.1:{free_port()}", "--base-domain", "cluster.test"]
    command += ["--https-port", "none", "--json"]
    with (work / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.communicate()


def wrk(url: str, seconds: float, connections: int) -> dict[str, float]:
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--latency"]
    said = subprocess.check_output([*command, "-H", f"Host: {HOST}", "-H", "User-Agent: wrk", url], text=True)
    if "Non-2xx" in said or "Socket errors" in said:
        raise SystemExit(f"{url}: {said}")
    value, unit = re.search(r"50%\s+([\d.]+)(us|ms|s)", said).groups()
    scale = {"us": 1, "ms": 1e3, "s": 1e6}[unit]
    return {"rate": float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1]), "p50": float(value) * scale}


def measure(options, urls: dict[str, str]) -> None:
    for connections in options.connections:
        found = {name: [] for name in urls}
        for number in range(options.rounds + 1):
            for name, url in urls.items():
                row = wrk(url, options.secs if number else 1, connections)
                # The first is for warming up.
                if number:
                    found[name].append(row)
        pick = lambda name, what: statistics.median(row[what] for row in found[name])
        for name in urls:
            print(f"{connections:3} connections, {name:5} node: {pick(name, 'rate'):8.0f}/s, p50 {pick(name, 'p50'):6.0f} us")
        ratios = [wrong["rate"] / right["rate"] for right, wrong in zip(found["right"], found["wrong"])]
        more = pick("wrong", "p50") - pick("right", "p50")
        print(f"    the hop: {statistics.median(ratios):.2f} x the requests, p50 {more:+.0f} us")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--secs", type=float, default=3)
    parser.add_argument("--connections", type=int, nargs="+", default=[32, 1])
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        work = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ginnel-bench-")))
        work.chmod(0o755)
        store = stack.enter_context(postgres.running(fsync=True)).new_database()
        with ginnel.Service(store=store, settings={"node_name": "first"}) as service:
            token, ca = service.authtoken, work / "ca.pem"
            ca.write_text(service.ca_pem)
        port = stack.enter_context(upstream(work))
        right, wrong = (stack.enter_context(node(store, name, work)) for name in ("right", "wrong"))
        agent = ginnel.Agent(server_addr=right["agent_addr"], authtoken=token, ca=ca)
        stack.callback(agent.stop, grace=0)
        with agent.client() as local:
            local.tunnels.start(name="app", addr=port, proto="http", schemes=["http"], subdomain="app")
        time.sleep(1)
        measure(options, {"right": right["http_url"], "wrong": wrong["http_url"]})


if __name__ == "__main__":
    main()
