"""How large the head of a request may be."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from processes import Command

TOO_MANY = "The request has too many headers."
TOO_LARGE = "The headers of the request are too large."


def response(port: int, head: str) -> str:
    """What a head gets, until the connection ends."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as visitor:
        visitor.sendall(head.encode())
        visitor.shutdown(socket.SHUT_WR)
        return visitor.makefile("rb").read().decode()


def head(fields: int, size: int = 0) -> str:
    """So many fields, `Host` among them, and so many bytes at least."""
    lines = ["GET / HTTP/1.1", "Host: nobody.test", *["X: y"] * (fields - 2)]
    last = "Z: " + "z" * max(1, size - sum(len(line) + 2 for line in lines) - 7)
    return "\r\n".join([*lines, last, "", ""])


def port_of(command: Command, url: str) -> int:
    return int(command.line()[url].rpartition(":")[2])


def config(folder: Path, text: str) -> str:
    file = folder / "ginnel.yml"
    file.write_text(text or "# nothing\n")
    return str(file)


@pytest.mark.parametrize(
    ("settings", "fields", "size"),
    [("", 100, 64 << 10), ("edge: {max_head_size: 2KiB, max_header_fields: 20}", 20, 2 << 10)],
)
def test_a_larger_head_of_a_visitor_is_refused(
    tmp_path: Path, settings: str, fields: int, size: int
) -> None:
    with Command("serve", "--config", config(tmp_path, settings)) as service:
        port = port_of(service, "http_url")
        more, larger = response(port, head(fields + 1)), response(port, head(3, size + 1))

        assert len(head(3, size)) == size
        assert " 404 " in response(port, head(fields)).splitlines()[0]
        assert " 431 " in more.splitlines()[0]
        assert more.endswith(f"\r\n\r\n{TOO_MANY}\n")
        assert " 404 " in response(port, head(3, size)).splitlines()[0]
        assert " 431 " in larger.splitlines()[0]
        assert larger.endswith(f"\r\n\r\n{TOO_LARGE}\n")


@pytest.mark.parametrize(
    ("settings", "fields", "size"),
    [("", 100, 64 << 10), ("api: {max_head_size: 4KiB, max_header_fields: 20}", 20, 4 << 10)],
)
def test_a_larger_head_is_refused_by_the_management_api(
    tmp_path: Path, settings: str, fields: int, size: int
) -> None:
    with Command("serve", "--config", config(tmp_path, settings)) as service:
        port = port_of(service, "url")
        more, larger = response(port, head(fields + 1)), response(port, head(3, size + 1))

        assert " 403 " in response(port, head(fields)).splitlines()[0]
        assert " 431 " in more.splitlines()[0]
        # More than a hundred never get so far.
        assert fields == 100 or f"has {fields + 1} header fields, the limit is {fields}" in more
        assert " 403 " in response(port, head(3, size)).splitlines()[0]
        assert " 431 " in larger.splitlines()[0]
        assert f"has {size + 1} bytes, the limit is {size}" in larger


@pytest.mark.parametrize("fields", [97, 100])
def test_a_head_that_fits_reaches_the_local_service_with_the_fields_of_the_edge(
    tmp_path: Path, fields: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as local:
        address = f"127.0.0.1:{local.getsockname()[1]}"
        with Command("dev", "http", address) as dev:
            port = int(dev.event("tunnel")["public_url"].rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port), timeout=30) as visitor:
                visitor.sendall(head(fields).encode())
                local.settimeout(30)
                connection, _ = local.accept()
                # The agent connects once to see whether there is a target.
                while not (seen := connection.recv(1)):
                    connection.close()
                    connection, _ = local.accept()
                with connection, connection.makefile("rb") as lines:
                    connection.settimeout(30)
                    while not seen.endswith(b"\r\n\r\n"):
                        line = lines.readline()
                        assert line, seen
                        seen += line
                    connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
                assert visitor.makefile("rb").readline().startswith(b"HTTP/1.1 204 ")

    assert seen.lower().count(b"\r\nx: y") == fields - 2
    assert b"\r\nx-forwarded-for: 127.0.0.1\r\n" in seen.lower()


@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("edge", "max_head_size: 65KiB"),
        ("edge", "max_header_fields: 101"),
        ("api", "max_head_size: 1KiB"),
    ],
)
def test_other_limits_are_not_to_be_set(tmp_path: Path, section: str, value: str) -> None:
    file = config(tmp_path, f"{section}: {{{value}}}\n")
    with Command("serve", "--config", file) as service:
        code, complaints = service.ended()

    assert code == 2
    assert f"{section}.{value.split(':')[0]}" in complaints
