"""A server of PostgreSQL, for the store that several nodes share."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from itertools import count

import pytest

from addresses import free_port
from processes import wait_until

NOBODY = 65534

ON_BOTH_STORES = pytest.mark.parametrize("storage", ["memory", "postgresql"], indirect=True)
"""Has tests that take `storage`, or the service on it, run on each engine."""


class DeadlockError(Exception):
    """A program waited for the locks of services, which waited for its own."""


class PostgresServer:
    """A server in a folder of its own, with databases by number."""

    def __init__(
        self, folder: pathlib.Path, *, fsync: bool = False, options: Sequence[str] = ()
    ) -> None:
        self.folder, self.port = folder, free_port()
        self._options = options
        self._fsync = fsync
        self._numbers = count()
        self._emptied: list[str] = []
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        options = (
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            f"fsync={'on' if self._fsync else 'off'}",
            *self._options,
        )
        at = ("-D", "data", "-k", self.folder, "-p", self.port)
        with (self.folder / "log").open("a") as log:
            self._process = self.run("postgres", *at, *options, stdout=log, stderr=log)
        wait_until(self.is_ready, "a server of PostgreSQL")

    def stop(self, kind: signal.Signals = signal.SIGINT) -> None:
        """Ends it without waiting for its clients; with SIGQUIT as if the machine had failed."""
        if self._process is not None:
            self._process.send_signal(kind)
            self._process.wait(30)
            self._process = None

    def run(self, program: str, *arguments: object, **options: object) -> subprocess.Popen[str]:
        """Starts one of its programs, which refuse to be run by an administrator."""
        user = NOBODY if os.geteuid() == 0 else None
        command = [str(programs() / program), *map(str, arguments)]
        return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
            command, cwd=self.folder, user=user, group=user, text=True, **options
        )

    def call(self, program: str, *arguments: object) -> str:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with self.run(program, *arguments, **pipes) as process:
            output, _ = process.communicate(timeout=60)
            if "deadlock detected" in output:
                raise DeadlockError(output)
            assert process.returncode == 0, output
            return output

    def is_ready(self) -> bool:
        with self.run("pg_isready", "-q", "-h", "127.0.0.1", "-p", self.port) as process:
            return process.wait(10) == 0

    def new_database(self) -> str:
        """The address of a new, empty database."""
        name = f"test_{next(self._numbers)}"
        self.sql("postgres", f"CREATE DATABASE {name}")
        return f"postgres://ginnel@127.0.0.1:{self.port}/{name}"

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """The address of an empty database, which is emptied for the next afterwards.

        Hundreds of databases would be gigabytes, which the server writes out when it stops.
        """
        address = self._emptied.pop() if self._emptied else self.new_database()
        yield address
        name = address.rpartition("/")[2]
        self.sql(
            name,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid();"
            "DROP SCHEMA IF EXISTS ginnel CASCADE",
        )
        self._emptied.append(address)

    def sql(self, database: str, statement: str) -> str:
        at = ("-h", "127.0.0.1", "-p", self.port, "-U", "ginnel", "-d", database)
        return self.call("psql", "-X", "-q", "-A", "-t", *at, "-c", statement).strip()


@contextlib.contextmanager
def running(*, fsync: bool = False, options: Sequence[str] = ()) -> Iterator[PostgresServer]:
    """A server that has started; without `fsync` it is faster, and may forget when it fails."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ginnel-postgres-"))
    server = PostgresServer(folder, fsync=fsync, options=options)
    try:
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        server.call("initdb", "-D", "data", "-U", "ginnel", "-A", "trust", "--no-sync")
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


def programs() -> pathlib.Path:
    """The folder of the server's programs."""
    installed = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    named = os.environ.get("GINNEL_POSTGRES")
    for folder in [pathlib.Path(named)] if named else installed:
        if (folder / "initdb").exists():
            return folder
    raise AssertionError(
        "PostgreSQL is missing: run `make packages`, or name it in GINNEL_POSTGRES"
    )
