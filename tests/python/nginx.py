"""A real nginx to forward to; `tests/install-packages` installs it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAM = os.environ.get("GINNEL_NGINX") or shutil.which(
    "nginx", path=f"{os.environ['PATH']}:/usr/sbin"
)

CONFIGURATION = """
daemon off;
master_process off;
pid {folder}/pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        {locations}
    }}
}}
"""


@contextlib.contextmanager
def nginx(folder: Path, locations: str) -> Iterator[int]:
    """An nginx with these locations; its port."""
    if PROGRAM is None:
        pytest.skip("nginx is not installed: run tests/install-packages")
    for _ in range(10):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port: int = free.getsockname()[1]
        file = folder / "nginx.conf"
        file.write_text(CONFIGURATION.format(folder=folder, port=port, locations=locations))
        command = [PROGRAM, "-p", str(folder), "-e", "stderr", "-c", str(file)]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            if not answers(process, port):
                # Somebody else has taken the port.
                continue
            try:
                yield port
            finally:
                process.terminate()
            return
    pytest.fail("nginx does not start")


def answers(process: subprocess.Popen[bytes], port: int) -> bool:
    """Whether nginx takes connections; false when it has ended."""
    deadline = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
            return True
        time.sleep(0.02)
    process.kill()
    return False
