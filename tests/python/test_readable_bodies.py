"""`text`, `json()` and `form()` of captured messages: without content codings, in their charset."""

from __future__ import annotations

import gzip
from base64 import b64encode

import pytest

from ginnel.local.requests import RequestMessage

MULTIPART = "multipart/form-data; boundary=B"
FORM = "application/x-www-form-urlencoded"


def message(content_type: str, body: bytes, *encodings: str) -> RequestMessage:
    head = b"POST / HTTP/1.1\r\n\r\n"
    headers = {"Content-Type": [content_type], "content-encoding": list(encodings)}
    return RequestMessage.from_dict(
        {
            "method": "POST",
            "proto": "HTTP/1.1",
            "headers": headers,
            "uri": "/",
            "raw": b64encode(head + body).decode(),
        }
    )


@pytest.mark.parametrize(
    ("content_type", "body", "text"),
    [
        ("text/plain; charset=windows-1252", b"5 \x80", "5 €"),
        ("text/plain; charset=utf-16", "Größe 東京".encode("utf-16"), "Größe 東京"),
        ("text/plain; charset=latin_1", b"Zo\xeb", "Zoë"),
        ("text/plain; charset=no-such", "Zoë".encode(), "Zoë"),
        ("text/plain", b"Zo\xeb", "Zoë"),
        ("text/plain", "\ufeffZoë".encode(), "Zoë"),
        ("text/plain; charset=utf-8", b"a\xff", "a\ufffd"),
        ("application/xml", b"<?xml version='1.0' encoding='koi8-r'?>\xd0", None),
        ("image/png", b"\x89PNG\r\n\x1a\n", None),
        ("", b"", ""),
    ],
)
def test_text_is_in_the_charset_of_the_body(
    content_type: str, body: bytes, text: str | None
) -> None:
    plain = message(content_type, body)
    packed = message(content_type, gzip.compress(body), "gzip")

    assert plain.body == body
    assert plain.text == packed.text
    assert text is None or plain.text == text


def test_json_has_neither_codings_nor_a_byte_order_mark() -> None:
    text = '{"a": 12345678901234567890.5, "b": "ë"}'

    for codec in ("utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32"):
        body = text.encode(codec)
        once = message("application/json", gzip.compress(body), "gzip")
        twice = message("application/json", gzip.compress(gzip.compress(body)), "gzip", "X-GZIP")
        assert once.json() == twice.json() == {"a": 12345678901234567890.5, "b": "ë"}, codec
    with pytest.raises(ValueError, match="Expecting value"):
        message("application/json", b"nothing", "utf-8").json()


def test_a_form_has_its_fields() -> None:
    parts = (
        b"--B\r\nContent-Disposition: form-data; name=a\r\n\r\nZo\xeb\r\n"
        b'--B\r\nContent-Disposition: form-data; name=f; filename="t"\r\n\r\nx\r\n'
        b"--B\r\nContent-Disposition: form-data; name=a\r\n\r\n2\r\n--B--"
    )

    assert message(FORM, b"a=Zo%C3%AB&b=&a=2+3").form() == {"a": ["Zoë", "2 3"], "b": [""]}
    assert message(FORM + "; charset=gbk", b"a=%B2%E8").form() == {"a": ["茶"]}
    assert message(MULTIPART, gzip.compress(parts), "gzip").form() == {"a": ["Zoë", "2"]}
    with pytest.raises(ValueError, match="not a form: text/plain"):
        message("text/plain", b"a=b").form()
