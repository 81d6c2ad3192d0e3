"""Compare the address types of ginnel with the readers of Python, curl and Node.js.

`cargo test --lib readings` runs this with 2,000 texts against Python's readers. With more texts and
all readers:

    GINNEL_READINGS=100000 GINNEL_READERS=python,packages,curl,node \\
        cargo test --lib readings -- --nocapture

Standard input has one line of JSON for each type and text: `kind`, `text`, and either `reading` or
the `reason` why the text is refused. A line is right if a reader finds the same host, port and
network, if both refuse, or if the difference has a reason in one of the tables below. Differences
are counted and printed with an example. Anything else is an error.
"""

import contextlib
import ipaddress
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from curl_urls import CurlUrls
from reading_report import Check, Difference, Line, read_lines, reader_names, report, run_node

DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443, "tls": 443}
MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")

REFUSED_HERE = {
    "Blank": "white space, control characters and backslashes: some readers remove or replace them",
    "Brackets": "an IPv6 address without brackets: its last group could be a port",
    "EmptyLabel": "not a host name: nothing between two dots, or before the first",
    "EmptySegment": "the path of a socket ends with a slash, or begins with two",
    "Fragment": "the type has no fragment",
    "HasPort": "the type has no port",
    "International": "letters that IDNA does not allow, or that requests may not contain",
    "IpAddress": "the type has names only",
    "Ipv6": "malformed IPv6 address or characters behind the brackets",
    "Login": "the type has no user and password",
    "LoginCharacter": "an unescaped character such as a second @: readers end the user elsewhere",
    "LookAlike": "letters that are mapped to ASCII: readers map them to a number, a dot or nothing",
    "Name": "not a host name: other characters or long labels",
    "NoHost": "no host: readers take an empty one, or the first part of the path",
    "NoPath": "the type needs a path",
    "NoPort": "the type needs a port",
    "NotCidr": "a netmask, a zone, or another notation of a number",
    "Number": "a notation of IPv4 addresses that readers take for other addresses or for names",
    "ParentFolder": "the path of a socket leads through `..`",
    "Path": "the type has no path",
    "PathCharacter": "an unescaped character in a path",
    "Port": "leading zeros, a sign, 0, or nothing behind the colon",
    "Query": "the type has no query",
    "RelativePath": "a relative path behind unix: or file:",
    "Scheme": "the type needs another scheme, or one that is followed by two slashes",
    "Url": "a URL in a field for a host and a port",
    "UrlOfHost": "a URL in a field for a host",
    "Zone": "an IPv6 address with a zone",
}


@dataclass(frozen=True)
class Reading:
    """What a reader finds in a text; None for what it does not look at."""

    host: str
    port: int | None = None


Reader = Callable[[str], Reading | None]


def normal_host(host: str) -> str:
    host = host.lower().removeprefix("[").removesuffix("]")
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(host))
    return host.removesuffix(".")


def python_url(text: str) -> Reading | None:
    """Read a URL with `urllib.parse`."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host:
        return None
    return Reading(normal_host(host), port or DEFAULT_PORTS.get(parts.scheme))


def python_address(text: str) -> Reading | None:
    """Read an address with `ipaddress`."""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        return Reading(str(ipaddress.ip_address(bare)))
    except ValueError:
        return None


def python_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Read a network with `ipaddress`."""
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def curl_url(curl: CurlUrls, text: str) -> Reading | None:
    """Read a URL with the URL parser of libcurl."""
    parts = curl.read(text, [CurlUrls.HOST, CurlUrls.PORT], CurlUrls.NON_SUPPORT_SCHEME)
    if parts is None or not parts[0]:
        return None
    host, port = parts[0], parts[1]
    default = DEFAULT_PORTS.get(text.split("://")[0].lower())
    return Reading(normal_host(host), int(port) if port else default)


NODE = """
const url = new URL(input);
return [url.protocol.slice(0, -1), url.hostname, url.port];
"""


def node(texts: list[str]) -> Reader:
    """Read all texts at once with the URL parser of Node.js."""
    found = dict(zip(texts, run_node(NODE, texts), strict=True))

    def read(text: str) -> Reading | None:
        if (parts := found[text]) is None or not parts[1]:
            return None
        scheme, host, port = parts
        return Reading(normal_host(host), int(port) if port else DEFAULT_PORTS.get(scheme))

    return read


def url_of(kind: str, text: str) -> str | None:
    """Return the URL that asks a URL parser about a text, or None if none does."""
    if kind in ("Authority", "WebUrl", "EndpointUrl"):
        return text
    if kind == "UpstreamAddress":
        if text.isdigit() or text.startswith(("unix:", "file:")):
            return None
        return text if "://" in text else f"http://{text}"
    if kind == "Host" and text.count(":") > 1 and not text.startswith("["):
        return f"http://[{text}]"
    return f"http://{text}" if kind != "Cidr" else None


def expected(line: Line) -> Reading | None:
    if (reading := line.get("reading")) is None or "host" not in reading:
        return None
    if not reading["host"]:
        return None
    port = reading.get("port") or DEFAULT_PORTS.get(reading.get("scheme", "http"))
    return Reading(normal_host(reading["host"]), port)


NAME = r"([a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?\.)*[a-z]([a-z0-9-]{0,30}[a-z0-9])?"
ORDINARY = re.compile(
    rf"(?P<host>{NAME}|\d+\.\d+\.\d+\.\d+|\[[0-9a-fA-F:]+\])(?::(?P<port>[1-9]\d{{0,4}}))?"
)


def is_ordinary(kind: str, text: str) -> bool:
    """Return true for an address that no type may refuse."""
    if kind in ("Authority", "WebUrl", "EndpointUrl"):
        scheme, _, text = text.partition("://")
        if scheme not in ("http", "https"):
            return False
    match = ORDINARY.fullmatch(text)
    if not match:
        return False
    host, port = match["host"], match["port"]
    if (port is not None) != (kind == "HostPort") and kind in (
        "HostPort",
        "Host",
        "HostName",
        "HostPattern",
    ):
        return False
    if kind in ("HostName", "HostPattern") and not re.fullmatch(NAME, host):
        return False
    is_name = re.fullmatch(NAME, host) and "xn--" not in host
    return bool(is_name or python_address(host)) and int(port or 80) < 65536


def reason_of_refusal(reader: str, text: str) -> str | None:
    """Return why a reader refuses a text that is accepted here."""
    if reader == "node" and re.search(r"xn--", text, re.IGNORECASE):
        return (
            "the label behind xn-- is not valid Punycode, but names of private networks have such"
        )
    if reader == "node" and re.match(r"(tcp|tls)://\*", text):
        return "an opaque host"
    if reader == "curl" and not text.isascii():
        return "another version of IDNA"
    if reader == "curl" and re.match(r"(https?|wss?|tcp|tls)://\*", text, re.IGNORECASE):
        return "a wildcard"
    return None


def reason_of_another(reader: str, text: str) -> str | None:
    """Return why a reader finds another host in a text that is accepted here."""
    if not text.isascii() and reader in ("urllib", "curl"):
        return "letters outside ASCII are kept as they are written"
    if not text.isascii() and re.match(r"(tcp|tls)://", text):
        return "hosts of schemes that are not of the web are percent-encoded"
    return None


def compare(reader: str, line: Line, text: str, there: Reading | None) -> Difference | None:
    """Return a difference that has a reason.

    Raises:
        AssertionError: The difference has no reason.
    """
    here, kind = expected(line), line["kind"]
    if here is None and "reading" in line:
        return None
    if here is None:
        assert not is_ordinary(kind, line["text"]), "an ordinary address is refused"
        if there is None:
            return None
        return Difference(reader, "refused", "read", REFUSED_HERE[line["reason"]])
    if there is None:
        reason = reason_of_refusal(reader, text)
        assert reason, "the reader refuses it"
        return Difference(reader, "read", "refused", reason)
    if there == here or (there.port is None and there.host == here.host):
        return None
    reason = reason_of_another(reader, text)
    assert reason, f"the reader finds {there}"
    assert there.port in (None, here.port), f"the reader finds {there}"
    return Difference(reader, "read", "another spelling", reason)


def compare_address(line: Line) -> Difference | None:
    """Compare with the reading of `ipaddress`, as `compare` does."""
    here, text = expected(line), line["text"]
    there = python_address(text)
    if line["kind"] == "HostName" and there is not None:
        assert here is None, "an address is read as a name"
        return None
    if there is None:
        is_address = here and python_address(here.host)
        assert not is_address, "the reader refuses it"
        return None
    if here is None:
        return Difference("ipaddress", "refused", "read", REFUSED_HERE[line["reason"]])
    assert here.host == there.host, f"the reader finds {there}"
    return None


def compare_network(line: Line) -> Difference | None:
    """Compare with the reading of `ipaddress`, as `compare` does."""
    there = python_network(line["text"])
    if "reading" not in line:
        if there is None:
            return None
        return Difference("ipaddress", "refused", "read", REFUSED_HERE["NotCidr"])
    if there is None:
        raise AssertionError("the reader refuses it")
    network = str(there)
    if isinstance(there, ipaddress.IPv6Network) and there.subnet_of(MAPPED):
        network = f"{there.network_address.ipv4_mapped}/{there.prefixlen - 96}"
    here = str(ipaddress.ip_network(line["reading"]["network"]))
    assert here == network, f"the reader finds {network}"
    return None


def checks(line: Line, readers: dict[str, Reader]) -> Iterator[Check]:
    """Yield the comparisons of a line."""
    kind, text = line["kind"], line["text"]
    if "urllib" in readers and kind == "Cidr":
        yield partial(compare_network, line)
    if "urllib" in readers and kind in ("Host", "HostName"):
        yield partial(compare_address, line)
    # The first label of a wildcard is not one of a URL.
    if (url := url_of(kind, text)) is not None and "*" not in text:
        for name, read in readers.items():
            yield partial(compare, name, line, url, read(url))


def make_readers(names: list[str], lines: list[Line]) -> dict[str, Reader]:
    readers: dict[str, Reader] = {}
    if "python" in names:
        readers["urllib"] = python_url
    if "curl" in names:
        readers["curl"] = partial(curl_url, CurlUrls())
    if "node" in names:
        urls = (url_of(line["kind"], line["text"]) for line in lines)
        readers["node"] = node(sorted({url for url in urls if url is not None}))
    return readers


def main() -> int:
    lines = read_lines()
    readers = make_readers(reader_names(), lines)
    return report(lines, lambda line: checks(line, readers), "addresses")


if __name__ == "__main__":
    sys.exit(main())
