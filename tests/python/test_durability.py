"""Answered means on disk: the service is killed under load, and nothing it acknowledged is lost."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import ginnel
import postgres
from processes import wait_until

ROUNDS = 50
NODE_ROUNDS = 8
WRITERS = 4


class Ledger:
    """What was acknowledged, kept outside of the service."""

    def __init__(self) -> None:
        self.created: set[str] = set()
        self.deleted: set[str] = set()
        self.unsure: set[str] = set()
        self.lock = threading.Lock()

    def wait_for_more(self, than: int) -> None:
        """Waits until more was created than so many."""
        wait_until(lambda: len(self.created) > than, "something is acknowledged")

    def write(self, url: str, key: str) -> None:
        """Creates, and deletes every third, until the service is gone."""
        client = ginnel.RemoteClient(key, base_url=url, max_retries=0)
        for turn in range(100_000):
            try:
                made = client.ip_policies.create().id
                with self.lock:
                    self.created.add(made)
                if turn % 3 == 0:
                    with self.lock:
                        self.unsure.add(made)
                    client.ip_policies.delete(made)
                    with self.lock:
                        self.deleted.add(made)
            except ConnectionError:
                break
        client.close()


def serve(*place: str) -> tuple[subprocess.Popen[str], str, str | None]:
    command = [sys.executable, "-m", "ginnel", "serve", *place, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    started = json.loads(process.stdout.readline())
    return process, started["url"], started["api_key"]


def test_a_killed_service_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    ledger = Ledger()
    key = ""
    for turn in range(ROUNDS):
        process, url, made = serve("--path", str(tmp_path / "ginnel.db"))
        key, before = made or key, len(ledger.created)
        writers = [threading.Thread(target=ledger.write, args=(url, key)) for _ in range(WRITERS)]
        for writer in writers:
            writer.start()
        ledger.wait_for_more(before)
        time.sleep(0.01 * (turn % 7))

        process.kill()

        process.communicate()
        for writer in writers:
            writer.join()

    with ginnel.Service(tmp_path / "ginnel.db") as service:
        client = ginnel.RemoteClient(key, base_url=service.url)
        found = {policy.id for policy in client.ip_policies.list()}
    assert len(ledger.created) > ROUNDS
    assert ledger.deleted
    assert ledger.created - ledger.unsure <= found
    assert not ledger.deleted & found
    print(f"\n{len(ledger.created)} creates and {len(ledger.deleted)} deletes acknowledged")


def test_nodes_that_are_killed_keep_what_they_acknowledged(
    postgres_server: postgres.PostgresServer,
) -> None:
    store = postgres_server.new_database()
    ledger, key = Ledger(), ""
    with ginnel.Service(store=store) as survivor:
        key = survivor.api_key or ""
        for turn in range(NODE_ROUNDS):
            process, url, _ = serve("--store", store, "--node-name", "killed")
            before = len(ledger.created)
            writers = [
                threading.Thread(target=ledger.write, args=(url, key)) for _ in range(WRITERS)
            ]
            for writer in writers:
                writer.start()
            ledger.wait_for_more(before)
            time.sleep(0.1 + 0.03 * (turn % 7))

            process.kill()

            process.communicate()
            for writer in writers:
                writer.join()

        with ginnel.RemoteClient(key, base_url=survivor.url) as client:
            found = {policy.id for policy in client.ip_policies.list()}
    assert len(ledger.created) > NODE_ROUNDS
    assert ledger.deleted
    assert ledger.created - ledger.unsure <= found
    assert not ledger.deleted & found


# The first start, which a kill may end at any point.

KILLS = int(os.environ.get("GINNEL_TEST_ROUNDS", "25"))


def first_start(path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ginnel", "serve", "--path", str(path), "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_in(process: subprocess.Popen[str], path: Path, pause: float) -> str:
    """Kills a first start so many seconds after it came to its database; gives what it printed."""
    lock = path.with_name(path.name + "-lock")
    while not lock.exists():
        assert process.poll() is None
    time.sleep(pause)
    process.kill()
    return process.communicate()[0]


def opening_time(path: Path) -> float:
    """How long a first start takes from its first file to its last."""
    process = first_start(path)
    while not path.with_name(path.name + "-lock").exists():
        assert process.poll() is None
    began = time.monotonic()
    assert process.stdout
    process.stdout.readline()
    took = time.monotonic() - began
    process.kill()
    process.communicate()
    return took


def test_a_first_start_may_be_killed_at_any_point(tmp_path: Path) -> None:
    took = opening_time(tmp_path / "measured.db")
    keyless, unusable, named = [], [], 0
    for turn in range(KILLS):
        folder = tmp_path / str(turn)
        folder.mkdir()
        path = folder / "ginnel.db"

        printed = kill_in(first_start(path), path, random.uniform(0, took * 1.1))

        named += path.exists()
        process = first_start(path)
        assert process.stdout
        line = process.stdout.readline()
        if not line:
            unusable.append(process.communicate()[1])
            continue
        started = json.loads(line)
        shown = [json.loads(text)["api_key"] for text in (printed, line) if text.endswith("\n")]
        keys = {key for key in shown if key}
        if not keys:
            keyless.append(path)
        for key in keys:
            with ginnel.RemoteClient(key, base_url=started["url"], max_retries=0) as client:
                assert client.api_keys.list().first()
        process.kill()
        process.communicate()
        assert not list(folder.glob("*-unfinished*"))
        assert not list(folder.glob("*.new"))

    print(f"\n{KILLS} kills within {took * 1.1:.3f} s; {named} left a database")
    assert (unusable, keyless) == ([], [])


def test_two_first_starts_at_once(tmp_path: Path) -> None:
    for turn in range(5):
        path = tmp_path / f"{turn}.db"
        processes = [first_start(path) for _ in range(3)]
        lines = []
        for process in processes:
            assert process.stdout
            lines.append(process.stdout.readline())
        winners = [line for line in lines if line]
        for process, line in zip(processes, lines, strict=True):
            if line:
                process.kill()
            errors = process.communicate()[1]
            if not line:
                assert process.returncode == 4
                assert "is in use by another process" in errors

        assert len(winners) == 1
        assert json.loads(winners[0])["api_key"]


def test_a_key_that_nobody_saw_is_shown_again(tmp_path: Path) -> None:
    path = tmp_path / "ginnel.db"
    code = "import os, sys, ginnel; ginnel.Service(sys.argv[1]); os._exit(9)"
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    files = [tmp_path / "ginnel.db-admin-key", tmp_path / "ginnel.db-authtoken"]
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600, 0o600]
    kept = [file.read_text().strip() for file in files]

    with ginnel.Service(path) as service, service.client() as client:
        assert [service.api_key, service.authtoken] == kept
        assert client.api_keys.list().first()

    assert not any(file.exists() for file in files)
    with ginnel.Service(path) as service:
        assert service.api_key is None
