"""Runs pyngrok's own tests, from its source distribution, with our launcher in place of its binary.

    python tests/peers/pyngrok_suite.py [FOLDER]

The distribution is fetched with pip into FOLDER, or into one that is removed afterwards. What it
downloads comes from a server of this script: an archive that holds the launcher. Prints each test
that does not pass, and writes the record for the table of `table.py`.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from records import Record

VERSION = "9.1.0"

REASONS = {
    "a tunnel to the agent API itself, which is refused since it would give visitors the API": [
        "test_captured_requests",
        "test_api_request_query_params",
        "test_ngrok_tunnel_refresh_metrics",
        "test_stop_monitor_thread",
    ],
    "`pooling_enabled` of tunnels": [
        "test_connect_tls",
        "test_ngrok_http_internal_endpoint_pooling",
        "test_ngrok_tls_internal_endpoint_pooling",
        "test_tunnel_definitions_tls",
    ],
    "addresses of the vendor's regions": [
        "test_regional_connect_url",
        "test_regional_subdomain",
        "test_regional_tcp",
    ],
    "looks for the page of Google, and a visitor that is no browser gets 401": [
        "test_tunnel_definitions",
    ],
    "looks for the vendor's downloads": ["test_ensure_installer_urls_exist"],
}
"""Why tests do not pass."""

CONFTEST = """
import io
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import ginnel
from pyngrok import installer

folder = Path(tempfile.mkdtemp())
application = {"client_id": "pyngrok", "client_secret": "nobody comes as far as to need it"}
service = ginnel.Service(
    base_domain="ngrok.io", https_port=443, settings={"oauth": {"google": application}}
)
subprocess.run([sys.executable, "-m", "ginnel", "compat", "ngrok", str(folder)], check=True)
archive = io.BytesIO()
with tarfile.open(fileobj=archive, mode="w:gz") as content:
    content.add(folder / "ngrok", "ngrok")


class Archive(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(archive.getvalue())))
        self.end_headers()
        self.wfile.write(archive.getvalue())

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Archive)
threading.Thread(target=server.serve_forever, daemon=True).start()
OURS = f"http://127.0.0.1:{server.server_port}/"


real = installer._download_file


def download(url, *arguments, **options):
    if url.startswith(installer.CDN_URL_PREFIX) and installer.urlopen is urlopen:
        url = OURS + url.rsplit("/", 1)[1]
    return real(url, *arguments, **options)


urlopen = installer.urlopen
installer._download_file = download

(folder / "ca.pem").write_text(service.ca_pem)
os.environ |= {
    "GINNEL_SERVER_ADDR": str(service.agent_addr),
    "GINNEL_ROOT_CAS": str(folder / "ca.pem"),
    "GINNEL_BASE_URL": service.url,
    "NGROK_AUTHTOKEN": service.authtoken,
    "NGROK_API_KEY": service.api_key,
    "NGROK_HOSTNAME": "ngrok.io",
    "NGROK_DOMAIN": "peer.ngrok.io",
    "SSL_CERT_FILE": str(folder / "ca.pem"),
}
resolve = socket.getaddrinfo


def resolve_ours(host, service_port, *arguments, **options):
    if str(host).endswith(".ngrok.io"):
        host = "127.0.0.1"
    return resolve(host, service_port, *arguments, **options)


socket.getaddrinfo = resolve_ours
"""

RESOURCES = """
import uuid


def generate_name_for_subdomain(prefix):
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def create_test_resources(temp=False):
    raise AssertionError("the resources are there")
"""


def run(folder: Path) -> int:
    """Unpacks, runs and counts; the exit code of pytest."""
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "--quiet"]
    if not (folder / f"pyngrok-{VERSION}.tar.gz").exists():
        subprocess.run([*pip, f"pyngrok=={VERSION}"], cwd=folder, check=True)
    with tarfile.open(folder / f"pyngrok-{VERSION}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    suite = folder / f"pyngrok-{VERSION}"
    (suite / "conftest.py").write_text(CONFTEST)
    (suite / "scripts").mkdir(exist_ok=True)
    (suite / "scripts" / "__init__.py").write_text("")
    (suite / "tests" / "__init__.py").write_text("")
    (suite / "scripts" / "create_test_resources.py").write_text(RESOURCES)
    pytest = [sys.executable, "-m", "pytest", "-q", "-rfEs", "--tb=line", "-p", "no:cacheprovider"]
    options = ["--junitxml=results.xml", *sys.argv[2:]]
    code = subprocess.run([*pytest, "tests", *options], cwd=suite, check=False).returncode
    if not sys.argv[2:]:
        print(record(suite / "results.xml").write())
    return code


def record(results: Path) -> Record:
    """What a run of all tests says."""
    tests = list(ElementTree.parse(results).iter("testcase"))
    names = [str(test.get("name")) for test in tests if len(kept(test))]
    return Record.of_tests("pyngrok", VERSION, len(tests), names, REASONS)


def kept(test: ElementTree.Element) -> list[ElementTree.Element]:
    """What keeps a test from having passed."""
    return [part for part in test if part.tag in ("failure", "error", "skipped")]


def main() -> None:
    if len(sys.argv) > 1:
        sys.exit(run(Path(sys.argv[1]).resolve()))
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(run(Path(folder)))


if __name__ == "__main__":
    main()
