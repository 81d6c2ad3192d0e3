"""The fixtures beside other plugins: pytest-xdist and anyio, each in a run of its own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import os
import urllib.request

import pytest


def app(environ, start):
    start("200 OK", [])
    return [environ["PATH_INFO"].encode()]


@pytest.mark.parametrize("number", range(6))
def test_a_service_is_nobody_elses(ginnel_remote, number):
    ginnel_remote.ip_policies.create(description=str(number))

    assert [p.description for p in ginnel_remote.ip_policies.list()] == [str(number)]


@pytest.mark.parametrize("number", range(4))
def test_a_tunnel_is_nobody_elses(ginnel_tunnel, ginnel_agent_client, number):
    with urllib.request.urlopen(f"{ginnel_tunnel(app)}/{number}") as answer:
        assert answer.read() == f"/{number}".encode()
    assert ginnel_agent_client.requests.wait_for(timeout=20).request.uri == f"/{number}"


def test_a_worker_of_xdist_runs_this():
    assert os.environ["PYTEST_XDIST_WORKER"].startswith("gw")
"""

ANYIO = """
import pytest

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def test_calls_are_awaited(ginnel_async_remote, ginnel_async_agent_client):
    import anyio

    made = []

    async def create():
        made.append(await ginnel_async_remote.ip_policies.create())

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(create)

    listed = [policy.id async for policy in ginnel_async_remote.ip_policies.list()]
    assert sorted(listed) == sorted(policy.id for policy in made)
    assert (await ginnel_async_agent_client.wait_ready()).status == "online"


async def test_a_cancelled_call_ends_at_once(ginnel_service, ginnel_async_remote):
    import anyio

    ginnel_service.fail(delay=60)
    with anyio.move_on_after(0.2) as scope:
        await ginnel_async_remote.api_keys.list().first()

    assert scope.cancelled_caught
    # A second call does not wait for the first.
    assert await ginnel_async_remote.api_keys.list().first()
"""


def run(folder: Path, tests: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def needs(module: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(missing, reason=f"needs {module}")


@needs("xdist")
def test_the_fixtures_work_in_parallel(tmp_path: Path) -> None:
    done = run(tmp_path, TESTS, "-n", "2", "-p", "no:asyncio")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "11 passed" in done.stdout


@needs("anyio")
def test_the_fixtures_work_with_anyio(tmp_path: Path) -> None:
    done = run(tmp_path, ANYIO, "-p", "anyio", "-p", "no:asyncio")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
