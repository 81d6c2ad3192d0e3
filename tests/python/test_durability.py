"""Answered means on disk: the service is killed under load, and nothing it acknowledged is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import ginnel

ROUNDS = 50
WRITERS = 4


class Ledger:
    """What was acknowledged, kept outside of the service."""

    def __init__(self) -> None:
        self.created: set[str] = set()
        self.deleted: set[str] = set()
        self.unsure: set[str] = set()
        self.lock = threading.Lock()

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


def serve(path: Path) -> tuple[subprocess.Popen[str], str, str | None]:
    command = [sys.executable, "-m", "ginnel", "serve", "--path", str(path), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    told = json.loads(process.stdout.readline())
    return process, told["url"], told["api_key"]


def test_a_killed_service_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    ledger = Ledger()
    key = ""
    for turn in range(ROUNDS):
        process, url, made = serve(tmp_path / "ginnel.db")
        key = made or key
        writers = [threading.Thread(target=ledger.write, args=(url, key)) for _ in range(WRITERS)]
        for writer in writers:
            writer.start()
        time.sleep(0.02 + 0.01 * (turn % 7))

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
