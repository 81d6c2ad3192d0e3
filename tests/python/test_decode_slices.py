"""Large answers are decoded in slices, with the same result as at once."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest

from ginnel import _native
from ginnel.remote.api_keys import ApiKey

ITEMS = [{"id": f"ak_{at}", "uri": "u", "description": "é🦊" * (at % 7)} for at in range(20_000)]
PAGE: dict[str, Any] = {"keys": ITEMS, "uri": "u", "next_page_uri": "", "new": [1, {"a": None}]}
BODY = json.dumps(PAGE, ensure_ascii=False).encode()


def slices(decoder: _native.BodyDecoder, budget: float = 0.0) -> tuple[int, Any]:
    """How many slices it takes, and the result."""
    done, count, result = False, 0, None
    while not done:
        done, result = decoder.advance(budget)
        count += 1
    return count, result


def test_a_page() -> None:
    count, (keys, uri, following) = slices(_native.BodyDecoder(BODY, ApiKey, "keys"))

    assert count > 20
    assert [key.to_dict() for key in keys] == ITEMS
    assert (uri, following) == ("u", None)


def test_free_json() -> None:
    count, value = slices(_native.BodyDecoder(BODY))

    assert count > 20
    assert value == PAGE


def test_time_enough_is_one_slice() -> None:
    assert slices(_native.BodyDecoder(BODY), 600)[0] == 1


def test_one_object_is_one_slice() -> None:
    count, key = slices(_native.BodyDecoder(b'{"id":"1","uri":"u"}', ApiKey))

    assert (count, key.id) == (1, "1")


@pytest.mark.parametrize("text", [b"null", b"0", b'""', b"[]", b"{}", b" [ 1 , [ ] , { } ] "])
def test_small_bodies(text: bytes) -> None:
    assert slices(_native.BodyDecoder(text))[1] == json.loads(text)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (b'"id": 5, "description"', r"keys\[19999\].id: a value that is not a string at byte \d+"),
        (b'"id": "\xff", "description"', r"bytes that are not UTF-8 at byte \d+"),
        (b'"id": "\\ud800", "description"', r"keys\[19999\].id: an invalid escape at byte \d+"),
        (b'"id": nul', r"keys\[19999\].id: a value that is not a string at byte \d+"),
    ],
)
def test_a_problem_near_the_end_is_named(damage: bytes, problem: str) -> None:
    at = BODY.rindex(b'"id"')
    body = BODY[:at] + damage + BODY[BODY.index(b'"description"', at) + len(b'"description"') :]
    decoder = _native.BodyDecoder(body, ApiKey, "keys")

    with pytest.raises(ValueError, match=problem):
        slices(decoder)
    with pytest.raises((ValueError, RuntimeError)):
        decoder.advance(1.0)


def test_a_problem_in_free_json_is_named() -> None:
    body = BODY.replace(b'"a": null', b'"a": 1e999')

    with pytest.raises(ValueError, match=r"new\[1\]\.a: a number beyond the range of a float at"):
        slices(_native.BodyDecoder(body))


@pytest.mark.parametrize("more", [b"x", b" {}", b","])
def test_nothing_may_follow(more: bytes) -> None:
    for decoder in (
        _native.BodyDecoder(BODY + more),
        _native.BodyDecoder(BODY + more, ApiKey, "keys"),
    ):
        with pytest.raises(ValueError, match="more than one value at byte"):
            slices(decoder)


@pytest.mark.parametrize("offset", range(4))
def test_a_character_may_lie_across_pieces(offset: int) -> None:
    text = "a" * offset + "🦊" * 600_000

    assert slices(_native.BodyDecoder(json.dumps(text, ensure_ascii=False).encode()))[1] == text
    with pytest.raises(ValueError, match="not UTF-8"):
        slices(_native.BodyDecoder(f'"{text}'.encode()[:-1]))


LONG_TEXTS = {
    "ascii": "a" * 3_000_000,
    "latin": "é" * 1_500_001,
    "wide": "a" + "漢" * 1_000_000,
    "pairs": "ab" + "🦊" * 500_000,
    "last one wide": "a" * 3_000_000 + "🦊",
    "quotes": 'a "text" of \\ texts\n' * 150_000,
    "backslashes": "\\" * 1_500_001,
    "one quote": "b" * 2_000_000 + '"' + "b" * 2_000_000,
}


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("name", LONG_TEXTS)
def test_a_long_text_is_many_slices(name: str, ascii_only: bool) -> None:
    text = LONG_TEXTS[name]
    key = {"id": "ak_1", "uri": "u", "description": text}
    numbers = list(range(20_000))
    page = {"numbers": numbers, "keys": [key, {"id": "2", "uri": "u", "new": text}], "uri": "u"}
    body = json.dumps(page, ensure_ascii=ascii_only).encode()
    one = json.dumps(key, ensure_ascii=ascii_only).encode()

    free = slices(_native.BodyDecoder(body))
    count, (keys, uri, _) = slices(_native.BodyDecoder(body, ApiKey, "keys"))
    first = slices(_native.BodyDecoder(one, ApiKey))

    assert free[1] == page
    assert [keys[0].description, keys[1].extra["new"], uri] == [text, text, "u"]
    assert first[1].description == text
    assert min(free[0], count, first[0]) > len(text.encode()) // (64 << 10)


def test_long_numbers_are_no_text() -> None:
    value = {"a": list(range(300_000)), "b": "x" * 1_000_000, "c": [0.5] * 300_000}
    for indent in (None, 1):
        assert slices(_native.BodyDecoder(json.dumps(value, indent=indent).encode()))[1] == value


@pytest.mark.parametrize(
    "wrong",
    ["\n", "\\x", "\\ud800", "\\ud800\\u0041", "\\u12", "\\ud83d\\", "\\ud83d\\ude0"],
)
@pytest.mark.parametrize("place", [0, (64 << 10) - 3, 1_000_000])
def test_a_problem_in_a_long_text_is_named(wrong: str, place: int) -> None:
    text = "a" * place + wrong + "é" * (1_000_000 - place // 2)
    body = f'{{"id":"1","uri":"{text}","more":"{"m" * 1_000_000}"}}'.encode()
    with pytest.raises(ValueError, match=r"uri: .* at byte \d+") as at_once:
        _native.decode(ApiKey, body)

    with pytest.raises(ValueError, match=r"uri: .* at byte \d+") as in_slices:
        slices(_native.BodyDecoder(body, ApiKey))

    assert str(in_slices.value) == str(at_once.value)


def test_a_long_text_that_does_not_end() -> None:
    for text in ('"' + "a" * 3_000_000, '"' + "a" * 3_000_000 + '\\"', '["' + "\\" * 3_000_000):
        with pytest.raises(ValueError, match="an unexpected end"):
            slices(_native.BodyDecoder(text.encode()))


def test_a_result_is_taken_once() -> None:
    decoder = _native.BodyDecoder(b"[1]")
    assert decoder.advance(1.0) == (True, [1])

    with pytest.raises(RuntimeError, match="decoded already"):
        decoder.advance(1.0)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        gc.enable() if enabled else gc.disable()
        decoder = _native.BodyDecoder(BODY, ApiKey, "keys")
        decoder.advance(0.0)
        assert gc.isenabled() == enabled
        with pytest.raises(ValueError, match="a value that is not a string"):
            _native.BodyDecoder(b'{"keys":[{"id":5}]}', ApiKey, "keys").advance(1.0)
        assert gc.isenabled() == enabled
    finally:
        gc.enable() if before else gc.disable()


def test_what_is_dropped_half_way_is_freed() -> None:
    decoder = _native.BodyDecoder(BODY, ApiKey, "keys")
    while not any(type(known) is ApiKey for known in gc.get_objects()):
        decoder.advance(0.0)

    del decoder
    gc.collect()

    assert not any(type(known) is ApiKey for known in gc.get_objects())


def test_sizes_from_which_slices_are_worth_it() -> None:
    assert 1 << 16 <= _native.BodyDecoder.MIN_BYTES <= 1 << 20
