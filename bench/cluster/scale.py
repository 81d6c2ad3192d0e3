#!/usr/bin/env python3
"""Many agents and endpoints on 1, 10 and 100 nodes: what they cost, and how soon changes are live; see README.md."""

import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests/python"))

import postgres
from addresses import free_port

# A node has at most ten connections.
OPTIONS = ["-c", "max_connections=1100", "-c", "shared_preload_libraries=pg_stat_statements"]
STATEMENTS = """
    SELECT sum(calls) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
    WHERE d.datname = current_database()
"""


@contextlib.contextmanager
def node(driver: pathlib.Path, store: str, name: str, folder: pathlib.Path):
    """A `ginnel serve`: what it says of itself, and the number of its process."""
    command = [driver, "as-ginnel", "serve", "--json", "--store", store, "--node-name", name]
    command += ["--peer-addr", f"127.0.0.1:{free_port()}", "--base-domain", "scale.test", "--https-port", "none"]
    command += ["--max-agent-connections", "20000"]
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        yield json.loads(process.stdout.readline()) | {"process": process.pid}
    finally:
        process.kill()
        process.communicate()


def measure(server: postgres.PostgresServer, options, nodes: int, driver: pathlib.Path) -> list[dict]:
    """The figures of a cluster of that size, on a new database."""
    store = server.new_database()
    database = store.rpartition("/")[2]
    server.sql(database, "CREATE EXTENSION pg_stat_statements")
    psql = [str(postgres.programs() / "psql"), "-XAtqh", "127.0.0.1", "-p", str(server.port), "-U", "ginnel"]
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ginnel-bench-")))
        started = [stack.enter_context(node(driver, store, f"node-{number}", folder)) for number in range(nodes)]
        cluster = {
            "nodes": started,
            "agents": options.agents,
            "endpoints": options.endpoints,
            "statements": [*psql, "-d", database, "-c", STATEMENTS],
            "authtoken": started[0]["authtoken"],
            "api_key": started[0]["api_key"],
        }
        said = subprocess.run([driver, "in-cluster"], input=json.dumps(cluster), stdout=subprocess.PIPE, text=True)
        if said.returncode != 0:
            print((folder / "node-0.log").read_text()[-4000:], file=sys.stderr)
            raise SystemExit(said.returncode)
    sizes = [("agents", options.agents), ("endpoints", options.endpoints)]
    counts = [{"name": name, "unit": "", "goal": "", "points": [[nodes, count]]} for name, count in sizes]
    return counts + json.loads(said.stdout)["curves"]


def rounded(figure: float | None) -> str:
    if figure is None:
        return ""
    return f"{figure:.3g}" if figure < 1000 else f"{figure:,.0f}"


def table(found: dict[int, list[dict]]) -> str:
    """One table in markdown, a column for each number of nodes."""
    rows: dict[str, dict[int, float]] = {}
    kinds: dict[str, tuple[str, str]] = {}
    for nodes, curves in found.items():
        for curve in curves:
            kinds[curve["name"]] = (curve["unit"], curve["goal"])
            rows.setdefault(curve["name"], {})[nodes] = curve["points"][0][1]
    heads = " | ".join(f"{nodes:,}" for nodes in found)
    lines = [f"| Nodes | unit | goal | {heads} |", f"| --- | --- | --- |{' ---: |' * len(found)}"]
    for name, figures in rows.items():
        cells = " | ".join(rounded(figures.get(nodes)) for nodes in found)
        lines.append(f"| {name} | {kinds[name][0]} | {kinds[name][1]} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--endpoints", type=int, default=100_000)
    parser.add_argument("--driver", type=pathlib.Path, help="bench/scale, built already")
    options = parser.parse_args()
    driver = options.driver
    if driver is None:
        subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT / "bench/scale", check=True)
        driver = ROOT / "bench/target/release/bench-scale"
    found = {}
    with postgres.running(fsync=True, options=OPTIONS) as server:
        for nodes in options.nodes:
            found[nodes] = measure(server, options, nodes, driver)
    print(table(found))


if __name__ == "__main__":
    main()
