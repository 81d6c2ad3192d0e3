"""Compare how ginnel and other programs read headers.

`cargo test --lib readings` runs this with some hundred texts of each type; `tests/fuzz/README.md`
has the figures of a long run. Lists (`Connection`, `Upgrade`), `Forwarded`, `X-Forwarded-For` with
`X-Forwarded-Proto`, `Cookie` and `Content-Type` are compared with readers of Python's standard
library, of h11, uvicorn, tornado and werkzeug, and of Node.js.
"""

import contextlib
import ipaddress
import re
import sys
from collections.abc import Callable, Iterator
from email.message import Message
from functools import partial
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.request import parse_http_list

from reading_report import Check, Difference, Line, read_lines, reader_names, report, run_node

Pairs = list[tuple[str, str]]
BLANKS = " \t"
TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
QUOTED = r'"(?:[^"\\]|\\.)*"'
TRUSTED = ipaddress.ip_network("10.0.0.0/8")
SCHEMES = ("http", "https", "ws", "wss")


def readable(text: str) -> str:
    """Return bytes that came as Latin-1 as ginnel reads them: UTF-8 if they are valid."""
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:
        return text


# Lists


def h11_list(name: str, lines: list[str]) -> list[str]:
    """Read lines with h11."""
    from h11._headers import Headers, get_comma_header

    raw = [(name.encode(), name.encode(), line.encode("latin-1")) for line in lines]
    return [it.decode("latin-1") for it in get_comma_header(Headers(raw), name.encode())]


def urllib_list(_: str, lines: list[str]) -> list[str]:
    """Read lines with `urllib.request`, which knows quoted strings."""
    return [it.lower() for it in parse_http_list(", ".join(lines)) if it]


def is_protocol(text: str) -> bool:
    """Return true for a protocol that an upstream may be asked for."""
    is_valid = re.fullmatch(f"{TOKEN}(/{TOKEN})?", text)
    return bool(is_valid) and not text.lower().startswith(("h2", "http"))


def compare_list(
    reader: str, read: Callable[[str, list[str]], list[str]], line: Line
) -> Difference | None:
    name, lines = line["kind"].lower(), line["text"]
    here = [ascii_lower(it) for it in line["reading"]["elements"]]
    there = read(name, lines)
    if name == "upgrade":
        there = [it for it in there if is_protocol(it)]
    if here == [ascii_lower(it) for it in there]:
        return None
    assert reader == "urllib", f"{reader} finds {there}"
    assert '"' in "".join(lines), f"{reader} finds {there}"
    reason = "commas in quotes: lists of tokens have no quoted strings"
    return Difference(reader, "more elements", "fewer", reason)


def ascii_lower(text: str) -> str:
    return re.sub("[A-Z]+", lambda it: it[0].lower(), text)


CONNECTION = """
const { HTTPParser } = process.binding('http_parser');
return ['1.0', '1.1'].map((version) => {
  const parser = new HTTPParser();
  parser.initialize(HTTPParser.REQUEST, {});
  let found = null;
  parser[HTTPParser.kOnHeaders] = () => {};
  parser[HTTPParser.kOnHeadersComplete] = (...head) => { found = [head[7], head[8]]; return 2; };
  const lines = input.map((line) => `Connection: ${line}\\r\\n`).join('');
  const head = `GET / HTTP/${version}\\r\\nHost: a\\r\\n${lines}Upgrade: x\\r\\n\\r\\n`;
  const end = parser.execute(Buffer.from(head, 'latin1'));
  return end instanceof Error && found === null ? null : found;
});
"""


def compare_connection(line: Line, there: Any) -> Difference | None:
    reading = line["reading"]
    for at, found in enumerate(there):
        here = [reading["upgrade"], reading["persists"][at]]
        if found is None or found == here:
            continue
        options = [it.lower() for it in reading["elements"]]
        assert found[0] == here[0], f"the reader finds {there}"
        # llhttp: what comes first counts for HTTP/1.0.
        assert {"close", "keep-alive"} <= set(options), f"the reader finds {there}"
        reason = "close and keep-alive: the connection ends here"
        return Difference("node", "closes", "persists", reason)
    return None


# Forwarded


def elements_of(lines: list[str]) -> list[str]:
    """Split lines at commas outside of quoted strings."""
    parts = re.findall(rf'(?:[^",]|{QUOTED}|")+', ",".join(lines), re.DOTALL)
    return [it.strip(BLANKS) for it in parts if it.strip(BLANKS)]


def email_parameters(text: str) -> Pairs:
    """Read parameters with `email`; the first item is what is before them."""
    message = Message()
    message["x"] = text
    found = message.get_params(header="x", unquote=True) or []
    return [(name.lower(), value) for name, value in found if isinstance(value, str)]


def werkzeug_parameters(text: str) -> Pairs:
    """Read parameters with werkzeug."""
    from werkzeug.http import parse_options_header

    value, options = parse_options_header(text)
    return [(value.lower(), ""), *options.items()]


def tornado_parameters(text: str) -> Pairs:
    """Read parameters with tornado."""
    from tornado.httputil import _parse_header

    value, options = _parse_header(text)
    return [(value.lower(), ""), *options.items()]


NODE_NAME = re.compile(
    r"(?P<v4>[0-9.]+)|\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<word>unknown|_[A-Za-z0-9._-]+)", re.IGNORECASE
)


def node(text: str) -> str | None:
    """Return a node of `Forwarded` in its usual form, or None if it is malformed."""
    match = NODE_NAME.match(text)
    if not match:
        return None
    name, port = match[0], text[match.end() :]
    if not re.fullmatch(r"|:(\d{1,5}|_[A-Za-z0-9._-]+)", port, re.ASCII):
        return None
    if port[1:].isdigit():
        if int(port[1:]) > 65535:
            return None
        port = f":{int(port[1:])}"
    if match["word"]:
        return ("unknown" if name.lower() == "unknown" else name) + port
    try:
        address = ipaddress.ip_address(match["v4"] or match["v6"])
    except ValueError:
        return None
    return (f"[{address}]" if match["v6"] else str(address)) + port


def normal_node(text: str | None) -> str | None:
    return node(text) if text is not None else None


def is_well_formed(lines: list[str]) -> bool:
    """Return true if lines follow RFC 7239, section 4."""
    pair = f"{TOKEN}=(?:{TOKEN}|{QUOTED})"
    element = f"(?:{pair})(?:;(?:{pair}))*"
    for line in lines:
        if not re.fullmatch(rf"[ \t,]*(?:{element}(?:[ \t]*,[ \t]*{element})*[ \t,]*)?", line):
            return False
    for text in elements_of(lines):
        pairs = [it.partition("=") for it in re.findall(pair, text)]
        known = [name.lower() for name, _, _ in pairs if name.lower() in KNOWN]
        if len(known) != len(set(known)):
            return False
        for name, _, value in pairs:
            bare = re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
            if name.lower() in ("for", "by") and node(bare) is None:
                return False
    return bool(elements_of(lines)) and "\xe9" not in "".join(lines)


KNOWN = ("by", "for", "host", "proto")


def compare_forwarded(reader: str, read: Callable[[str], Pairs], line: Line) -> Difference | None:
    lines = line["text"]
    if "reading" not in line:
        assert not is_well_formed(lines), "a well-formed field is refused"
        if not any(read(f"x;{it}")[1:] for it in elements_of(lines)):
            return None
        return Difference(reader, "refused", "read", "malformed: other servers read other parts")
    there = []
    for element in elements_of(lines):
        found = dict(reversed(read(f"x;{element}")[1:]))
        there.append({name: found.get(name) for name in KNOWN})
    here = [{name: it[name] for name in KNOWN} for it in line["reading"]]
    for own, other in zip(here, there, strict=True):
        for name in ("for", "by"):
            own[name], other[name] = normal_node(own[name]), normal_node(other[name])
        other["host"] = other["host"] or None
    if here == there:
        return None
    reason = reason_of_parameters(reader, ",".join(lines))
    assert reason, f"{reader} finds {there}"
    return Difference(reader, "read", "another value", reason)


def reason_of_parameters(reader: str, text: str) -> str | None:
    """Return why a reader finds other parameters."""
    if reader == "werkzeug" and re.search(r"[ \t]=|=[ \t]", text):
        return "blanks around ="
    if reader in ("email", "tornado") and "\\" in text:
        return "escapes: the reader splits or unescapes quoted strings in another way"
    return None


# X-Forwarded-For and X-Forwarded-Proto


def address_of(entry: str) -> str | None:
    """Return the address of an entry of `X-Forwarded-For`, read with `ipaddress`."""
    if "%" in entry:
        return None
    match = re.fullmatch(r"\[([^\]]*)\](?::\d+)?|([0-9.]+)(?::\d+)?|(.*)", entry, re.DOTALL)
    bare = next((it for it in match.groups() if it is not None), "") if match else ""
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def is_trusted(address: str) -> bool:
    try:
        return ipaddress.ip_address(address) in TRUSTED
    except ValueError:
        return False


def entries_of(lines: list[str]) -> list[str]:
    """Return the elements of a list without the empty ones (RFC 9110, section 5.6.1.2)."""
    return [entry for it in ",".join(lines).split(",") if (entry := it.strip(BLANKS))]


def has_empty_elements(lines: list[str]) -> bool:
    return any(not it.strip(BLANKS) for it in ",".join(lines).split(","))


def ipaddress_visitor(text: Any) -> tuple[str, str | None]:
    """Find the last address that is not trusted; stop at a word that is not an address."""
    visitor, position = str(address_of(text["peer"])), None
    entries, schemes = entries_of(text["addresses"]), entries_of(text["schemes"])
    for at in reversed(range(len(entries))):
        found = address_of(entries[at])
        if not is_trusted(visitor) or found is None:
            break
        visitor, position = found, at
    has_entry = position is not None and len(schemes) == len(entries)
    at = position if has_entry and position is not None else -1
    scheme = schemes[at].lower() if schemes else ""
    return visitor, scheme if scheme in SCHEMES else None


def uvicorn_visitor(text: Any) -> tuple[str, str | None]:
    """Find the visitor with the middleware of uvicorn."""
    from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

    async def application(*_: Any) -> None: ...

    headers = [(b"x-forwarded-for", it.encode("latin-1")) for it in text["addresses"]]
    headers += [(b"x-forwarded-proto", it.encode("latin-1")) for it in text["schemes"]]
    host, port = text["peer"].split(":")
    scope: Any = {
        "type": "http",
        "client": (host, int(port)),
        "scheme": "none",
        "headers": headers,
    }
    unused: Any = None
    call = ProxyHeadersMiddleware(application, [str(TRUSTED)])(scope, unused, unused)
    with contextlib.suppress(StopIteration):
        call.send(None)
    scheme = scope["scheme"]
    return scope["client"][0], None if scheme == "none" else scheme


class TrustedHosts:
    """The trusted proxies, for tornado."""

    def __contains__(self, host: str) -> bool:
        return is_trusted(host)


def tornado_visitor(text: Any) -> tuple[str, str | None]:
    """Find the visitor with the server of tornado."""
    from tornado.httpserver import _HTTPRequestContext
    from tornado.httputil import HTTPHeaders

    context: Any = _HTTPRequestContext.__new__(_HTTPRequestContext)
    context.remote_ip, context.protocol = text["peer"].split(":")[0], "none"
    context.trusted_downstream = TrustedHosts()
    headers = HTTPHeaders()
    for name, lines in (("X-Forwarded-For", "addresses"), ("X-Forwarded-Proto", "schemes")):
        for it in text[lines]:
            # The server of tornado refuses lines that begin or end with blanks behind the first.
            headers.add(name, it.strip(BLANKS))
    context._apply_xheaders(headers)
    return context.remote_ip, None if context.protocol == "none" else context.protocol


def compare_visitor(
    reader: str, read: Callable[[Any], tuple[str, str | None]], line: Line
) -> Iterator[Check]:
    text, reading = line["text"], line["reading"]
    address, scheme = read(text)
    yield partial(compare_visitor_address, reader, text, reading["address"], address)
    yield partial(compare_visitor_scheme, reader, text, reading["scheme"], scheme)


def compare_visitor_address(reader: str, text: Any, here: str, found: str) -> Difference | None:
    there = address_of(found)
    if there == here:
        return None
    entries = entries_of(text["addresses"])
    words = [it for it in entries if address_of(it) is None]
    assert reader != "ipaddress", f"{reader} finds {found}"
    if has_empty_elements(text["addresses"]):
        reason = "empty elements do not count: the reader takes one for a word"
    elif any("%" in it for it in entries):
        reason = "an address with a zone belongs to another machine"
    elif words:
        reason = "a word that is not an address: addresses before it are not believed"
    elif any("::ffff:" in it for it in entries):
        reason = "IPv4 addresses in the form of IPv6 are IPv4 addresses"
    else:
        has_more = re.search(r"[\[\]]|\.\d+:\d", ",".join(entries))
        is_known = reader == "tornado" and has_more
        assert is_known, f"{reader} finds {found}"
        reason = "addresses with a port or brackets: the reader knows none"
    return Difference(reader, "read", "another address", reason)


def compare_visitor_scheme(
    reader: str, text: Any, here: str | None, there: str | None
) -> Difference | None:
    if here == there:
        return None
    schemes = entries_of(text["schemes"])
    assert reader != "ipaddress", f"{reader} finds {there}"
    if has_empty_elements(text["schemes"]) or has_empty_elements(text["addresses"]):
        reason = "empty elements do not count: the reader takes one for a word"
    elif len(schemes) > 1:
        reason = "a list: the scheme is the one of the visitor's address, or the last one"
    elif here in ("ws", "wss") and there is None:
        reason = "the reader does not know ws and wss"
    else:
        is_known = here == schemes[0].lower() != schemes[0] and there is None
        assert is_known, f"{reader} finds {there}"
        reason = "capital letters"
    return Difference(reader, "read", "another scheme", reason)


# Cookies


# A cookie of RFC 6265, section 4.1.1.
ORDINARY = re.compile(rf'[ \t]*{TOKEN}=("?)[!#-+\--:<-\[\]-~]*\1[ \t]*')


def python_cookies(line: str) -> Pairs:
    """Read cookies with `http.cookies`."""
    cookies = SimpleCookie()
    try:
        cookies.load(line)
    except CookieError:
        return []
    return [(name, it.value) for name, it in cookies.items()]


def werkzeug_cookies(line: str) -> Pairs:
    """Read cookies with werkzeug."""
    from werkzeug.http import parse_cookie

    # It raises an error for bytes that are not UTF-8.
    text = line if readable(line) != line or line.isascii() else ""
    return list(parse_cookie({"HTTP_COOKIE": text}).items(multi=True))


def tornado_cookies(line: str) -> Pairs:
    """Read cookies with tornado."""
    from tornado.httputil import parse_cookie

    return list(parse_cookie(line).items())


def compare_cookies(reader: str, read: Callable[[str], Pairs], line: Line) -> Iterator[Check]:
    text: str = line["text"]
    here = [(name, value) for name, value in line["reading"]]
    there = [(readable(name), readable(value)) for name, value in read(text)]
    for pair in there:
        yield partial(compare_cookie, reader, text, here, pair)
    hidden = [name for name, _ in here if name not in {name for name, _ in there}]
    if hidden:
        yield partial(compare_hidden_cookie, reader, text, hidden)


def compare_cookie(reader: str, text: str, here: Pairs, pair: tuple[str, str]) -> Difference | None:
    """Compare one cookie that a reader finds."""
    name, value = pair
    values = [own for known, own in here if known == name]
    if value in values:
        return None
    if not values:
        reason = reason_of_name(reader, text, name)
        assert reason, f"{reader} finds {pair}"
        return Difference(reader, "no cookie", "a cookie", reason)
    reason = reason_of_value(reader, text, value, values)
    assert reason, f"{reader} finds {pair}"
    return Difference(reader, "read", "another value", reason)


def reason_of_name(reader: str, text: str, name: str) -> str | None:
    """Return why a reader finds a cookie that is not found here."""
    chunks = [readable(it).strip() for it in text.split(";")]
    if name in chunks or (name == "" and any("=" not in it for it in text.split(";"))):
        return "no =: the reader takes the text for a name or for a value"
    if reader == "http.cookies":
        return "cookies behind blanks, commas or quotes: the reader follows RFC 2109"
    if "\xa0" in text:
        return "white space outside ASCII around a name"
    return None


def reason_of_value(reader: str, text: str, value: str, values: list[str]) -> str | None:
    """Return why a reader finds another value in a cookie."""
    chunks = [readable(it).strip() for it in text.split(";")]
    if value in chunks or f'"{value}"' in chunks:
        return "no =: the reader takes the text for a name or for a value"
    if reader == "werkzeug" and not all(map(ORDINARY.fullmatch, text.split(";"))):
        return "a cookie with characters that RFC 6265 does not allow, or one next to it"
    if ";" in value or (reader == "werkzeug" and re.search('="[^"]*;', text)):
        return "a semicolon in quotes: the value ends there, as for most servers"
    if '"' in text and "\\" in text:
        return "escapes in quotes are kept as they are written"
    if reader == "http.cookies":
        return "cookies behind blanks, commas or quotes: the reader follows RFC 2109"
    if "\xa0" in text:
        return "white space outside ASCII around a value"
    return None


def compare_hidden_cookie(reader: str, text: str, hidden: list[str]) -> Difference | None:
    """Compare cookies that a reader does not find."""
    if reader == "http.cookies":
        is_odd = "$" in text or not all(map(ORDINARY.fullmatch, text.split(";")))
        assert is_odd, f"{reader} does not find {hidden}"
        reason = "a cookie that the reader cannot parse ends or hides the list"
    elif reader == "werkzeug" and readable(text) == text and not text.isascii():
        reason = "bytes that are not UTF-8: the reader finds no cookie at all"
    elif reader == "werkzeug" and not all(map(ORDINARY.fullmatch, text.split(";"))):
        reason = "a cookie with characters that RFC 6265 does not allow, or one next to it"
    elif all(name == "" for name in hidden):
        reason = "a cookie without a name"
    else:
        assert "\xa0" in text, f"{reader} does not find {hidden}"
        reason = "white space outside ASCII around a name"
    return Difference(reader, "a cookie", "no cookie", reason)


# Media types

MEDIA_TYPE = """
const { MIMEType } = require('util');
const type = new MIMEType(input);
return [type.essence, [...type.params.entries()]];
"""


def compare_media_type(reader: str, there: Pairs, line: Line) -> Difference | None:
    text, reading = line["text"], line["reading"]
    media_type, parameters = reading["type"].lower(), [tuple(it) for it in reading["parameters"]]
    found_type, found = there[0][0] if there else "", first_values(there[1:])
    if found_type.strip(BLANKS) == media_type and found == dict(parameters):
        return None
    reason = reason_of_media_type(reader, text, found, dict(parameters))
    assert reason, f"{reader} finds {found_type!r} {found}"
    return Difference(reader, "read", "another value", reason)


def first_values(pairs: Pairs) -> dict[str, str]:
    return {name.strip(BLANKS): value for name, value in reversed(pairs)}


def reason_of_media_type(
    reader: str, text: str, found: dict[str, str], here: dict[str, str]
) -> str | None:
    """Return why a reader finds another type or other parameters."""
    start, _, parameters = text.partition(";")
    if reader in ("email", "tornado") and re.search('[="]', start):
        return "the text before the parameters is not a media type"
    if reader == "node" and re.search(rf"=[ \t]*{QUOTED}[^;]*=", parameters):
        return "text behind a quoted string ends with the next semicolon"
    if re.search(r"[ \t]=|=[ \t]", parameters):
        return "blanks around ="
    if not text.isascii():
        return "letters outside ASCII"
    if reader in ("werkzeug", "tornado", "email"):
        if '"' in parameters:
            return "malformed or escaped quoted strings: read as browsers read them"
        names = [it.partition("=")[0].strip().lower() for it in parameters.split(";") if "=" in it]
        if len(names) != len(set(names)):
            return "a parameter twice: the first counts, as in browsers"
        if any(
            not it.partition("=")[2].strip() or not re.fullmatch(TOKEN, it.partition("=")[0])
            for it in parameters.split(";")
        ):
            return "a parameter without a value, or whose name is not a token"
        if any(
            not re.fullmatch(TOKEN, it.partition("=")[2].strip()) for it in parameters.split(";")
        ):
            return "a value that is not a token"
        if not text.partition(";")[0].strip():
            return "no type"
    return None


# All


def checks(line: Line, names: list[str], found: dict[int, Any]) -> Iterator[Check]:
    """Yield the comparisons of a line."""
    kind, is_of = line["kind"], {name: name in names for name in ("python", "packages", "node")}
    there = found.get(id(line))
    if kind in ("Connection", "Upgrade"):
        if is_of["python"]:
            yield partial(compare_list, "urllib", urllib_list, line)
        if is_of["packages"]:
            yield partial(compare_list, "h11", h11_list, line)
        if kind == "Connection" and there is not None:
            yield partial(compare_connection, line, there)
    elif kind == "X-Forwarded":
        if is_of["python"]:
            yield from compare_visitor("ipaddress", ipaddress_visitor, line)
        if is_of["packages"]:
            yield from compare_visitor("uvicorn", uvicorn_visitor, line)
            yield from compare_visitor("tornado", tornado_visitor, line)
    elif kind == "Cookie":
        if is_of["python"]:
            yield from compare_cookies("http.cookies", python_cookies, line)
        if is_of["packages"]:
            yield from compare_cookies("werkzeug", werkzeug_cookies, line)
            yield from compare_cookies("tornado", tornado_cookies, line)
    else:
        yield from checks_of_parameters(line, is_of, there)


def checks_of_parameters(line: Line, is_of: dict[str, bool], there: Any) -> Iterator[Check]:
    readers: list[tuple[str, Callable[[str], Pairs]]] = []
    if is_of["python"]:
        readers += [("email", email_parameters)]
    if is_of["packages"]:
        readers += [("werkzeug", werkzeug_parameters), ("tornado", tornado_parameters)]
    for name, read in readers:
        if line["kind"] == "Forwarded":
            yield partial(compare_forwarded, name, read, line)
        else:
            yield partial(compare_media_type, name, read(line["text"]), line)
    if line["kind"] == "Content-Type" and there is not None:
        pairs = [(there[0], ""), *((name, value) for name, value in there[1])]
        yield partial(compare_media_type, "node", pairs, line)


def node_readings(lines: list[Line]) -> dict[int, Any]:
    """Return what Node.js reads, by the identity of the lines."""
    found: dict[int, Any] = {}
    for kind, script in (("Connection", CONNECTION), ("Content-Type", MEDIA_TYPE)):
        asked = [line for line in lines if line["kind"] == kind]
        results = run_node(script, [line["text"] for line in asked])
        found |= {id(line): it for line, it in zip(asked, results, strict=True)}
    return found


def main() -> int:
    names, lines = reader_names(), read_lines()
    found = node_readings(lines) if "node" in names else {}
    return report(lines, lambda line: checks(line, names, found))


if __name__ == "__main__":
    sys.exit(main())
