"""Compare how ginnel and other programs read paths and targets of requests.

`cargo test --lib readings` runs this with some hundred texts of each type; `tests/fuzz/README.md`
has the figures of a long run. A path is right if each reader finds its normal form or one of the
other readings that ginnel lists for it: rules are tried with all of them. A target is right if each
reader finds the same host, port, path and query.
"""

import posixpath
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urljoin, urlsplit

from curl_urls import CurlUrls
from reading_report import Check, Difference, Line, read_lines, reader_names, report, run_node

PathReader = Callable[[str], str | None]

# What a path may have without an escape, RFC 3986, section 3.3, but for the slash.
PATH_SIGNS = "!$&'()*+,;=:@~"


def normal(path: str) -> str:
    """Return a path in the form that rules look at, made with `urllib.parse`."""

    def octet(escape: re.Match[str]) -> str:
        letter = chr(int(escape[1], 16))
        return letter if re.fullmatch(r"[A-Za-z0-9._~-]", letter) else escape[0].upper()

    escaped = re.sub(r"%(?![0-9a-fA-F]{2})", "%25", path)
    plain = re.sub("%([0-9a-fA-F]{2})", octet, escaped)
    return re.sub("/+", "/", quote(plain, safe="/%" + PATH_SIGNS))


def served_file(path: str) -> str | None:
    """Read a path with `http.server`."""
    handler = SimpleHTTPRequestHandler.__new__(SimpleHTTPRequestHandler)
    handler.directory = "/"
    file = handler.translate_path(path)
    return quote(file.encode(errors="surrogateescape"), safe="/" + PATH_SIGNS)


def joined(path: str) -> str | None:
    """Resolve a path with `urllib.parse`; behind two slashes it finds a host."""
    if path.startswith("//"):
        return None
    return urlsplit(urljoin("http://h/x", path)).path or "/"


def decoded(path: str) -> str | None:
    """Read a path as servers of ASGI and WSGI do: decoded, and nothing is resolved."""
    return quote(unquote_to_bytes(path), safe="/" + PATH_SIGNS)


def collapsed(path: str) -> str | None:
    """Read a path with `posixpath` after it was decoded."""
    return quote(posixpath.normpath(unquote_to_bytes(path)), safe="/" + PATH_SIGNS)


def curl_path(curl: CurlUrls, path: str) -> str | None:
    """Read a path with libcurl."""
    parts = curl.read(f"http://h{path}", [CurlUrls.PATH])
    return parts[0] if parts else None


NODE_PATH = """
return [new URL('http://h' + input).pathname, new URL(input, 'http://h').pathname];
"""


def compare_path(reader: str, line: Line, there: str | None) -> Difference | None:
    if there is None:
        return None
    text, reading = line["text"], line["reading"]
    found = normal(there)
    known = [normal(it) for it in (reading["normal"], *reading["readings"])]
    if found in known:
        return None
    reason = reason_of_path(reader, text, reading, found)
    assert reason, f"{reader} finds {found}"
    return Difference(reader, reading["ambiguity"] or "no ambiguity", "another path", reason)


def reason_of_path(reader: str, text: str, reading: Any, found: str) -> str | None:
    """Return why a reader finds a path that ginnel does not list."""
    known = [normal(it) for it in (reading["normal"], *reading["readings"])]
    if reader in ("posixpath", "http.server") and f"{found}/" in known:
        return "the slash at the end is removed"
    if reader == "http.server" and "%EF%BF%BD" in found:
        return "bytes that are not UTF-8 are replaced"
    if reader == "urljoin" and reading["ambiguity"] and re.search(r"\.;", text):
        return "a dot segment with parameters is resolved, and the parameters stay"
    if reader == "urljoin" and text.endswith(";") and f"{found};" in known:
        return "a semicolon at the end is removed"
    return None


# Targets

NODE_TARGET = """
const url = new URL(input);
return [url.hostname, url.port, null];
"""

NODE_HTTP = """
const { HTTPParser } = process.binding('http_parser');
const parser = new HTTPParser();
parser.initialize(HTTPParser.REQUEST, {});
let found = null;
parser[HTTPParser.kOnHeadersComplete] = (...head) => { found = head[4]; return 2; };
parser.execute(Buffer.from(`GET ${input} HTTP/1.1\\r\\nHost: a.test\\r\\n\\r\\n`));
return found;
"""

ORDINARY = re.compile(
    r"(http://[a-z]+\.test(:80)?(?=[/?]|$))?(/([a-zA-Z0-9._~!$&'()*+,;=:@/-]|%[0-9a-fA-F]{2})*)?"
    r"(\?([a-zA-Z0-9._~!$&'()*+,;=:@/?-]|%[0-9a-fA-F]{2})*)?"
)

Place = tuple[str | None, int | None, str | None]


def urllib_target(text: str) -> Place | None:
    """Read a target with `urllib.parse`."""
    is_path = text.startswith("/")
    try:
        parts = urlsplit(f"http://h{text}" if is_path else text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    query = f"?{parts.query}" if "?" in text.partition("#")[0] else ""
    return (None if is_path else host), port, parts.path + query


def curl_target(curl: CurlUrls, text: str) -> Place | None:
    """Read a target with libcurl."""
    is_path = text.startswith("/")
    wanted = [CurlUrls.HOST, CurlUrls.PORT, CurlUrls.PATH, CurlUrls.QUERY]
    url = f"http://h{text}" if is_path else text
    parts = curl.read(url, wanted, CurlUrls.PATH_AS_IS)
    if parts is None:
        return None
    host, port, path, query = parts
    target = (path or "") + ("" if query is None else f"?{query}")
    return (None if is_path else host), int(port) if port else None, target


def normal_host(host: str | None) -> str | None:
    if host is None:
        return None
    return host.lower().strip("[]").removesuffix(".")


def compare_target(reader: str, line: Line, there: Place | None) -> Difference | None:
    text = line["text"]
    if "reading" not in line:
        is_ordinary = text.startswith(("/", "http://")) and ORDINARY.fullmatch(text)
        assert not is_ordinary, "an ordinary target is refused"
        if there is None:
            return None
        return Difference(reader, "refused", "read", reason_of_refusal(text))
    reading = line["reading"]
    if there is None:
        raise AssertionError(f"{reader} refuses it")
    host, port, target = there
    default = 443 if text.lower().startswith("https") else 80
    if reading["host"] is not None:
        same = normal_host(reading["host"]) == normal_host(host)
        assert same, f"{reader} finds the host {host}"
        assert (reading["port"] or default) == (port or default), f"{reader} finds {port}"
    if target is None:
        return None
    own = reading["target"]
    if own == target or own == f"/{target}" or (own, target) == ("/", ""):
        return None
    raise AssertionError(f"{reader} finds {target}")


def reason_of_refusal(text: str) -> str:
    """Return why a target is refused that a reader reads."""
    if re.search(r"[ <>]", text):
        return "characters that no target may have"
    if not text.startswith("/") and not re.match(r"https?://", text, re.IGNORECASE):
        return "neither a path nor a URL"
    return "the authority has no host, a user, or another notation of an address or a port"


def checks(
    line: Line, names: list[str], curl: CurlUrls | None, found: dict[str, dict[str, Any]]
) -> Iterator[Check]:
    """Yield the comparisons of a line."""
    text: str = line["text"]
    if line["kind"] == "RequestPath":
        readers: dict[str, PathReader] = {}
        if "python" in names:
            readers |= {"urljoin": joined, "http.server": served_file, "posixpath": collapsed}
            readers |= {"unquote": decoded}
        if curl:
            readers["curl"] = partial(curl_path, curl)
        for name, read in readers.items():
            yield partial(compare_path, name, line, read(text))
        for there in found.get("path", {}).get(text) or []:
            yield partial(compare_path, "node", line, there)
        return
    if "python" in names:
        yield partial(compare_target, "urllib", line, urllib_target(text))
    if curl:
        yield partial(compare_target, "curl", line, curl_target(curl, text))
    if "node" in names:
        if not text.startswith(("/", "*")):
            there = found["target"].get(text)
            place = (there[0], int(there[1]) if there[1] else None, None) if there else None
            yield partial(compare_target, "node", line, place)
        url = found["http"].get(text)
        yield partial(compare_llhttp, line, url)


def compare_llhttp(line: Line, there: str | None) -> Difference | None:
    """Compare with the targets that llhttp, the parser of Node.js, accepts."""
    text = line["text"]
    if ("reading" in line) == (there is not None):
        assert there in (None, text), f"llhttp finds {there}"
        return None
    if there is None:
        return Difference("llhttp", "read", "refused", "letters outside ASCII")
    return Difference("llhttp", "refused", "read", reason_of_refusal(text))


def node_readings(lines: list[Line]) -> dict[str, dict[str, Any]]:
    """Return what Node.js reads, by the text."""
    found: dict[str, dict[str, Any]] = {}
    for name, kind, script in (
        ("path", "RequestPath", NODE_PATH),
        ("target", "Target", NODE_TARGET),
        ("http", "Target", NODE_HTTP),
    ):
        texts = sorted({line["text"] for line in lines if line["kind"] == kind})
        found[name] = dict(zip(texts, run_node(script, texts), strict=True))
    return found


def main() -> int:
    names, lines = reader_names(), read_lines()
    curl = CurlUrls() if "curl" in names else None
    found = node_readings(lines) if "node" in names else {}
    return report(lines, lambda line: checks(line, names, curl, found))


if __name__ == "__main__":
    sys.exit(main())
