"""What is secret in captured traffic, and what stands for it when it is shown.

Names decide, of headers, parameters, members and elements, and the forms that tokens are known by.
Too much is masked rather than too little: whoever needs the bytes has `raw`.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_plus

from ._native import is_secret, is_secret_parameter

MASK = "•••"
"""Stands for a secret."""

_SCHEME = r"(?:(?:basic|bearer|digest|token)\s{1,4})?"
_QUOTED = r""""(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?"""
# name: value, name=value and "name": "value"
_NAMED = re.compile(r"""(?<![\w.-])([\w.-]{1,256})["']?\s{0,8}[:=]\s{0,8}""")
_VALUE = re.compile(rf"""{_QUOTED}|{_SCHEME}[^\s,;&<>{{}}"']+""", re.IGNORECASE)
# <name attributes>value</name>
_ELEMENT = re.compile(
    r"""<([A-Za-z_][\w:.-]*)((?:"[^"<]*"|'[^'<]*'|[^<>"'])*)(?<!/)>"""
    r"""(\s*(?:<!\[CDATA\[.*?(?:\]\]>|\Z)|[^<]+))""",
    re.DOTALL,
)
_ENTRY = re.compile(r"""\bname\s*=\s*["']([^"']*)""", re.IGNORECASE)
_IN_TEXT = (
    (re.compile(r"\b(basic|bearer)\s{1,4}[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1 {MASK}"),
    # https://user:password@host
    (re.compile(r"(://)[^\s/@:]{1,256}:[^\s/@]{1,256}@"), rf"\1{MASK}@"),
    # JSON web tokens, tokens of our own, and those of others that say what they are
    (re.compile(r"\beyJ[\w-]{4,2000}\.[\w-]+(?:\.[\w-]*)?"), MASK),
    (re.compile(r"\b[0-9A-Za-z]{27}_[0-9][0-9A-Za-z]{20}\b"), MASK),
    (re.compile(r"\b(?:sk|rk|whsec|gh[opsur]|github_pat|glpat|xox[abprs])[_-][\w-]{8,}"), MASK),
)


def text(shown: str) -> str:
    """A text without what looks like a secret."""
    shown = _ELEMENT.sub(_element, _named(shown))
    for pattern, instead in _IN_TEXT:
        shown = pattern.sub(instead, shown)
    return shown


def _named(shown: str) -> str:
    """The text with the values masked that follow the name of a secret."""
    parts, done = [], 0
    for name in _NAMED.finditer(shown):
        if name.start() < done or not is_secret(name[1]):
            continue
        if value := _VALUE.match(shown, name.end()):
            parts += [shown[done : name.end()], MASK]
            done = value.end()
    return "".join([*parts, shown[done:]])


def _element(found: re.Match[str]) -> str:
    name, attributes, value = found.groups()
    names = [name.rpartition(":")[2], *_ENTRY.findall(attributes)]
    if not value.strip() or not any(map(is_secret, names)):
        return found[0]
    return f"<{name}{attributes}>{MASK}"


def header(name: str, value: str) -> str:
    """The value of a header; of credentials the scheme is left, of cookies their names."""
    match name.lower():
        case "authorization" | "proxy-authorization":
            scheme, space, _ = value.partition(" ")
            return f"{scheme} {MASK}" if space else MASK
        case "cookie":
            return "; ".join(_cookie(cookie) for cookie in value.split(";"))
        case "set-cookie":
            cookie, semicolon, attributes = value.partition(";")
            return _cookie(cookie) + semicolon + attributes
        case "location" | "referer" | "content-location":
            return uri(value)
        case _:
            return MASK if is_secret(name) else text(value)


def _cookie(cookie: str) -> str:
    name, equals, _ = cookie.strip().partition("=")
    return f"{name}={MASK}" if equals else MASK


def uri(target: str) -> str:
    """A path or an address; of secret parameters the names are left."""
    target, hash_, fragment = target.partition("#")
    path, question, query = target.partition("?")
    return text(path) + question + parameters(query) + hash_ + parameters(fragment)


def parameters(query: str) -> str:
    """What follows the question mark of an address, or fills a form."""
    return "&".join(_parameter(one) for one in query.split("&"))


def _parameter(one: str) -> str:
    name, equals, value = one.partition("=")
    if not equals:
        return text(one)
    return f"{name}={MASK if is_secret_parameter(unquote_plus(name)) else text(value)}"


def json(value: object) -> object:
    """A JSON value with the members masked whose names are secret, and texts without secrets."""
    match value:
        case dict():
            return {
                name: MASK if inner not in (None, "") and is_secret(name) else json(inner)
                for name, inner in value.items()
            }
        case list():
            return [json(inner) for inner in value]
        case str():
            return text(value)
        case _:
            return value
