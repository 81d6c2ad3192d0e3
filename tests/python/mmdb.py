"""Writes databases for IPv4 by the MaxMind DB File Format Specification, version 2.0."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

MAP, TEXT, DOUBLE, UINT16, UINT32, UINT64, ARRAY, BOOLEAN = 7, 2, 3, 5, 6, 9, 11, 14


def control(kind: int, size: int) -> bytes:
    """The byte with type and size, and those that follow it."""
    assert size < 285
    short, more = (size, b"") if size < 29 else (29, bytes([size - 29]))
    if kind > 7:
        return bytes([short, kind - 7]) + more
    return bytes([kind << 5 | short]) + more


def number(kind: int, value: int) -> bytes:
    raw = value.to_bytes(8, "big").lstrip(b"\0")
    return control(kind, len(raw)) + raw


def encode(value: Any) -> bytes:
    match value:
        case bool():
            return control(BOOLEAN, int(value))
        case int():
            return number(UINT32, value)
        case float():
            return control(DOUBLE, 8) + struct.pack(">d", value)
        case str():
            return control(TEXT, len(value.encode())) + value.encode()
        case list():
            return control(ARRAY, len(value)) + b"".join(map(encode, value))
        case dict():
            pairs = (encode(name) + encode(one) for name, one in value.items())
            return control(MAP, len(value)) + b"".join(pairs)
    raise TypeError(value)


def write(path: Path, networks: Mapping[str, dict[str, Any]]) -> Path:
    """A database with what is known of each network."""
    nodes: list[list[tuple[str, int]]] = [[("none", 0), ("none", 0)]]
    data = b""
    for network, known in networks.items():
        ranged, node = IPv4Network(network), 0
        bits = f"{int(ranged.network_address):032b}"[: ranged.prefixlen]
        for bit in map(int, bits[:-1]):
            kind, index = nodes[node][bit]
            if kind == "none":
                nodes.append([("none", 0), ("none", 0)])
                index = len(nodes) - 1
                nodes[node][bit] = ("node", index)
            node = index
        nodes[node][int(bits[-1])] = ("data", len(data))
        data += encode(known)
    of = {"none": 0, "node": -len(nodes), "data": 16}
    records = (of[kind] + index + len(nodes) for node in nodes for kind, index in node)
    tree = b"".join(record.to_bytes(3, "big") for record in records)
    metadata = (
        control(MAP, 9)
        + encode("node_count")
        + number(UINT32, len(nodes))
        + encode("record_size")
        + number(UINT16, 24)
        + encode("ip_version")
        + number(UINT16, 4)
        + encode("database_type")
        + encode("Test")
        + encode("languages")
        + encode(["en"])
        + encode("binary_format_major_version")
        + number(UINT16, 2)
        + encode("binary_format_minor_version")
        + number(UINT16, 0)
        + encode("build_epoch")
        + number(UINT64, 1_700_000_000)
        + encode("description")
        + encode({"en": "a test"})
    )
    path.write_bytes(tree + bytes(16) + data + b"\xab\xcd\xefMaxMind.com" + metadata)
    return path
