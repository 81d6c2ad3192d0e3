#!/usr/bin/env python3
"""Runs all benchmarks and prints one table; see README.md.

    bench/run.py [--only edges,policy] [--rounds 5] [--out bench/results/today.json]

Builds for release first, into an environment of its own.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from release_profile import cargo_config, profile_hash
from rows import Row, save
from tables import markdown

HERE = Path(__file__).resolve().parent
VENV = HERE / "clients" / "venv"
PYTHON = VENV / "bin" / "python"
PROGRAMS = HERE / "target" / "release"
# What hand-written Python needs for the same calls, blocking and with asyncio. A fair floor has the duties of our clients:
# a timeout for each read, a look at a reused connection, a checked head.
Floors = tuple[str, str]
Samples = dict[str, dict[str, list[dict[str, float]]]]
FLOORS = ("[floor] socket+orjson", "[floor] asyncio.Protocol+orjson")
FAIR_FLOORS = ("[floor] socket+orjson, same duties", "[floor] asyncio.Protocol+orjson, same duties")
TLS_FLOORS = ("[floor] ssl+orjson", "[floor] asyncio.Protocol+ssl+orjson")
FAIR_TLS_FLOORS = (
    "[floor] ssl+orjson, same duties",
    "[floor] asyncio.Protocol+ssl+orjson, same duties",
)
PEERS = (
    *("pycurl+orjson", "pyreqwest sync", "primp sync", "httpx.Client", "ngrok-api"),
    *("aiohttp+orjson", "pyreqwest async", "primp async", "httpx.AsyncClient"),
)
BLOCKING = ("seq", "t8", "pages")
ASYNCIO = ("c1", "c64", "c256", "apages")
HTTPS = ("seq", "c1", "c64")


def run(*command: str | Path, folder: Path = HERE.parent, **more: str) -> None:
    print("+", *command, flush=True)
    subprocess.run(command, cwd=folder, check=True, env={**os.environ, **more})


def build(suites: set[str]) -> None:
    if suites & {"clients", "edges", "tunnel"}:
        if not PYTHON.exists():
            run(os.environ.get("PYTHON", sys.executable), "-m", "venv", VENV)
        pip = (PYTHON, "-m", "pip", "install", "--quiet")
        run(*pip, "-r", HERE / "clients/requirements.txt", "maturin[zig]>=1.9,<2")
        wheels = HERE / "clients/wheels"
        shutil.rmtree(wheels, ignore_errors=True)
        # The wheel that `make wheels` builds and that users install.
        run(HERE.parent / "tests/build-wheel", "release", wheels, MATURIN=str(VENV / "bin/maturin"))
        install = ("--force-reinstall", "--no-deps", "--no-index", "--find-links", wheels)
        run(*pip, *install, "ginnel")
    # Programs of peers, and those that load others.
    for suite, folder in {"clients": "clients/server", "tunnel": "tunnel/load"}.items():
        if suite in suites:
            manifest = HERE / folder / "Cargo.toml"
            run("cargo", "build", "--release", "--quiet", "--manifest-path", manifest)
    if suites & {"policy", "service", "scale"}:
        # Programs that link the crate are built as the wheel is, and all at once, so that it is compiled once.
        profile = HERE / "results" / "release-profile.toml"
        profile.parent.mkdir(exist_ok=True)
        profile.write_text(cargo_config())
        command = ("cargo", "build", "--release", "--quiet", "--config", profile)
        run(*command, "--manifest-path", HERE / "Cargo.toml")


def written(folder: Path, *command: str | Path) -> Any:
    """What a program writes to the file that is its last argument."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "result.json"
        run(*command, file, folder=folder, PATH=f"{VENV / 'bin'}:{os.environ['PATH']}")
        return json.loads(file.read_text())


def clients(rounds: int) -> list[Row]:
    plain = client_samples(rounds, [*BLOCKING, *ASYNCIO, "start"], *FLOORS, *FAIR_FLOORS, *PEERS)
    tls = client_samples(rounds, HTTPS, *TLS_FLOORS, *FAIR_TLS_FLOORS, tls=True)

    def row(samples: Samples, scenario: str, name: str, peer: str, label: str) -> Row:
        def rates(client: str) -> list[float]:
            return [sample["rps"] for sample in samples[scenario][client]]

        ours = "ginnel async" if scenario in ASYNCIO else "ginnel"
        return Row("clients", name, "calls/s", rates(ours), label, rates(peer))

    def of_floors(samples: Samples, scenario: str, name: str, bare: Floors, fair: Floors) -> list[Row]:
        is_async = scenario in ASYNCIO
        return [
            row(samples, scenario, name, fair[is_async], "fair floor"),
            row(samples, scenario, f"{name}, bare", bare[is_async], "bare floor"),
        ]

    rows = []
    for scenario in (*BLOCKING, *ASYNCIO):
        rows += of_floors(plain, scenario, scenario, FLOORS, FAIR_FLOORS)
    for scenario in HTTPS:
        rows += of_floors(tls, scenario, f"https {scenario}", TLS_FLOORS, FAIR_TLS_FLOORS)
    for scenario in (*BLOCKING, *ASYNCIO):
        others = [peer for peer in PEERS if peer in plain[scenario]]
        rows += [row(plain, scenario, f"{scenario} of {peer}", peer, peer) for peer in others]
    for name, key in {"import": "import_ms", "first call": "first_ms"}.items():
        times = [sample[key] for sample in plain["start"]["ginnel"]]
        rows.append(Row("clients", name, "ms", times, more_is_better=False))
    return rows


def client_samples(rounds: int, scenarios: Iterable[str], *peers: str, tls: bool = False) -> Samples:
    command = [PYTHON, "run.py", "--hook", "ginnel_hook.py", "--no-raw", "--secs", "0.4"]
    command += ["--tls"] if tls else []
    command += ["--only", ";".join(["ginnel", "ginnel async", *peers]), "--rounds", str(rounds)]
    samples: Samples = written(
        HERE / "clients", *command, "--scenario", ",".join(scenarios), "--json"
    )
    return samples


def edges(rounds: int) -> list[Row]:
    got = written(
        HERE / "edges", PYTHON, "run.py", "--rounds", str(rounds), "--secs", "1", "--json"
    )

    def row(name: str) -> Row:
        kind, what = re.fullmatch(r"(.*?)(-post|-h2|-full|-resumed)?", name).groups(default="")
        peer = ("nginx-tls" if kind.endswith("tls") else "nginx") + what
        ours, theirs = got[name], got[peer]
        return Row("edges", name, "requests/s", of(ours, "rate"), "nginx", of(theirs, "rate"))

    def of(samples: list[dict[str, float]], key: str) -> list[float]:
        return [sample[key] for sample in samples]

    watched = written(
        HERE / "edges",
        PYTHON,
        *("run.py", "--metrics", "--only", "plain", "policed"),
        *("--rounds", str(rounds), "--secs", "1", "--json"),
    )

    def counted(name: str) -> Row:
        on, off = of(watched[name], "rate"), of(watched[f"before-{name}"], "rate")
        return Row("edges", f"{name} with metrics", "requests/s", on, "without", off)

    rows = [row(name) for name in got if not name.startswith("nginx")]
    return rows + [counted(name) for name in ("plain", "policed")]


def tunnel(rounds: int) -> list[Row]:
    ours = {"ginnel": "", "ginnel-capture": " with capture", "ginnel-policed": " with a policy"}
    targets = ",".join(["direct", "rathole", *ours])
    command = [PYTHON, "run.py", "--only", targets, "--secs", "1", "--half"]
    got = written(HERE / "tunnel", *command, "--rounds", str(rounds), "--out")
    rows = []
    for test, measured in got.items():
        key, unit = ("mbs", "MB/s") if test.startswith("bulk") else ("rate", "requests/s")
        # rathole carries the bytes of a call without a look at them, and is no peer there.
        peer = "rathole" if "rathole" in measured and test != "grpc32" else "direct"
        theirs = [sample[key] for sample in measured[peer]]
        for target, suffix in ours.items():
            samples = [sample[key] for sample in measured[target]]
            rows.append(Row("tunnel", test + suffix, unit, samples, peer, theirs))
    return rows


def policy(rounds: int) -> list[Row]:
    return [
        Row("policy", **row)
        for row in written(HERE / "policy", PROGRAMS / "bench-policy", "--json")
    ]


def service(rounds: int) -> list[Row]:
    return [
        Row("service", **row)
        for row in written(HERE / "service", PROGRAMS / "service", "--json")
    ]


# Of what the short form measures, what depends least on what else the machine does.
SCALE_ROWS = {
    "idle session": ("agents", "memory of an idle session"),
    "all agents back": ("agents", "all back after their connections broke"),
    "edge": ("edges", "memory of an edge after the start"),
    "change live, p99": ("edges", "a change is live, p99"),
    "idle visitor": ("visitors", "memory of a connection, idle"),
    "slow visitor": ("visitors", "memory of a connection, slow"),
}


def scale(rounds: int) -> list[Row]:
    got = written(HERE / "scale", PROGRAMS / "bench-scale", "--short", "--json")
    curves = {(part["part"], curve["name"]): curve for part in got for curve in part["curves"]}

    def row(name: str, key: tuple[str, str]) -> Row:
        curve = curves[key]
        size, figure = curve["points"][-1]
        return Row("scale", name, f"{curve['unit']}, {size}", [figure], more_is_better=False)

    return [row(name, key) for name, key in SCALE_ROWS.items()]


SUITES: dict[str, Callable[[int], list[Row]]] = {
    "policy": policy,
    "clients": clients,
    "edges": edges,
    "tunnel": tunnel,
    "service": service,
    "scale": scale,
}


def about() -> dict[str, str]:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True
    )
    now = datetime.datetime.now(datetime.UTC)
    return {
        "commit": commit.stdout.strip(),
        "profile": profile_hash(),
        "when": now.isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} processors, {platform.system()}",
        "python": platform.python_version(),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--only", default=",".join(SUITES), help="suites, with commas")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--no-build", action="store_true", help="measure what was built last")
    arguments.add_argument(
        "--out", type=Path, help="where the samples go; a file in bench/results by default"
    )
    chosen = arguments.parse_args()
    suites = chosen.only.split(",")
    if unknown := set(suites) - SUITES.keys():
        arguments.error(
            f"unknown suites {', '.join(sorted(unknown))}: choose from {', '.join(SUITES)}"
        )
    if not chosen.no_build:
        build(set(suites))
    rows = [row for suite in suites for row in SUITES[suite](chosen.rounds)]
    facts = about()
    file = (
        chosen.out
        or HERE / "results" / f"{facts['when'][:19].replace(':', '')}-{facts['commit']}.json"
    )
    save(file, facts, rows)
    print(f"\nprofile {facts['profile']}, commit {facts['commit']}, {facts['machine']}\n")
    print(markdown(rows))
    print(f"\nsamples: {file}")


if __name__ == "__main__":
    main()
