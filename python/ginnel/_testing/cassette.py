"""Cassettes: files of recorded calls, which tests play instead of making them.

The native module asks the cassette in use for the response to each call, below the decoder and
above the transport, so all that happens to a response of a server happens to a recorded one. Files
hold no secrets, and not the address of the server.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections import Counter
from difflib import SequenceMatcher
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from .. import _native
from .._capture import mask
from .._native import is_secret, use_cassette
from ..exceptions import CassetteError, ConfigError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Literal, Self, TypeAlias

    RecordMode: TypeAlias = Literal["none", "once", "new", "all"]
    _Parts: TypeAlias = tuple[int, list[tuple[str, str]], bytes]

MODES = ("none", "once", "new", "all")
DEFAULT_MODE = "once"
FORMAT = 1
"""The version of the files' format."""
BASE_URL = "<base_url>"
"""What stands for the address of the server."""
NOT_RECORDED = {
    "connection",
    "content-encoding",
    "content-length",
    "date",
    "keep-alive",
    "transfer-encoding",
}
"""Headers that concern one connection or one moment."""
MAX_DIFFERENCES = 5
"""How many differences an error lists."""

default_mode: str = DEFAULT_MODE
"""What cassettes do that are not told; `--ginnel-record` sets it."""


class Cassette:
    """The calls in a file. While it is entered, it answers those of all clients of the process."""

    def __init__(self, path: str | os.PathLike[str], record: RecordMode | None = None) -> None:
        mode = default_mode if record is None else record
        if mode not in MODES:
            raise ConfigError(f"record={mode!r}: must be one of {', '.join(MODES)}")
        self.path: Path = Path(path)
        """The file."""
        self.record: str = mode
        """What it does with calls that it does not know: see `ginnel.testing.cassette`."""
        self._lock = Lock()
        self._exchanges: list[dict[str, Any]] = []
        self._comparable: list[dict[str, Any]] = []
        self._played: list[bool] = []
        self._recorded: list[dict[str, Any] | None] = []
        self._before: object = None

    @property
    def unplayed(self) -> list[str]:
        """The recorded requests that were not made, such as `GET /api_keys`."""
        pairs = zip(self._exchanges, self._played, strict=True)
        return [_line(exchange["request"]) for exchange, is_played in pairs if not is_played]

    def __enter__(self) -> Self:
        exists = self.path.exists()
        if self.record == "none" and not exists:
            raise CassetteError(
                f'{self.path} does not exist, and record="none" forbids to record it'
            )
        self._recorded = []
        self._exchanges = _read(self.path) if exists and self.record != "all" else []
        self._comparable = [_comparable(exchange["request"]) for exchange in self._exchanges]
        self._played = [False] * len(self._exchanges)
        self._is_recording = self.record in ("new", "all") or not exists
        self._before = use_cassette(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        use_cassette(self._before)
        if kind is None:
            self.save()

    def save(self) -> None:
        """Write what was recorded, as the end of the block does unless that is an exception."""
        with self._lock:
            new = [exchange for exchange in self._recorded if exchange is not None]
        if not self._is_recording or (self.record == "new" and not new and self.path.exists()):
            return
        _write(self.path, [*self._exchanges, *new])

    def __repr__(self) -> str:
        return f"<Cassette {str(self.path)!r}, record={self.record!r}>"

    def _play(
        self, method: str, target: str, body: bytes | None, base_url: str
    ) -> tuple[object, _Parts | None]:
        """The answer to a request; without one, the place for it."""
        stored = _stored(body, base_url, method, target)
        request = {"method": method, "target": mask.uri(target), **stored}
        comparable = _comparable(request)
        with self._lock:
            for at, exchange in enumerate(self._exchanges):
                if not self._played[at] and self._comparable[at] == comparable:
                    self._played[at] = True
                    return None, _answer(exchange["response"], base_url)
            if not self._is_recording:
                raise CassetteError(self._unknown(request))
            # In the order in which calls begin, whichever ends first.
            self._recorded.append(None)
            return (len(self._recorded) - 1, request, base_url), None

    def _record(
        self,
        place: tuple[int, dict[str, Any], str],
        status: int,
        headers: dict[str, str],
        body: bytes,
    ) -> None:
        at, request, base_url = place
        kept = {
            name: _unaddressed(mask.header(name, value), base_url)
            for name, value in headers.items()
            if name not in NOT_RECORDED
        }
        call = (request["method"], request["target"])
        stored = _stored(body, base_url, *call, is_response=True)
        response = {"status": status, "headers": kept, **stored}
        with self._lock:
            self._recorded[at] = {"request": request, "response": response}

    def _unknown(self, request: dict[str, Any]) -> str:
        """What to say of a request that was not recorded."""
        line = _line(request)
        again = 'record="all" or --ginnel-record=all records it anew'
        known = [exchange["request"] for exchange in self._exchanges]
        if count := self._comparable.count(_comparable(request)):
            times = "once" if count == 1 else f"{count} times"
            return (
                f"{line} was recorded {times} in {self.path}, and is made once more; each response "
                f"is played once; {again}"
            )
        said = f"{line} is not in {self.path}, and record={self.record!r} forbids to record it"
        if not known:
            return f"{said}; the file is empty; {again}"
        nearest = max(known, key=lambda one: _likeness(one, request))
        told = [f"{said}; {again}", f"nearest: {_line(nearest)}"]
        if _line(nearest) == line:
            told[1] += ", with another body"
        return "\n".join([*told, *(f"  {text}" for text in _differences(nearest, request))])


def _line(request: dict[str, Any]) -> str:
    return f"{request['method']} {request['target']}"


def _likeness(one: dict[str, Any], other: dict[str, Any]) -> float:
    """How much two requests are like each other; bodies decide between those of the same line."""
    lines = SequenceMatcher(None, _line(one), _line(other)).ratio()
    body, other_body = (json.dumps(it.get("body"), sort_keys=True) for it in (one, other))
    return lines + SequenceMatcher(None, body, other_body).quick_ratio() / 1000


def _differences(recorded: dict[str, Any], made: dict[str, Any]) -> list[str]:
    """How the body of a request differs from the recorded one; both are masked."""
    from .assertions import _json_differences

    if "body" not in recorded or "body" not in made:
        return []
    found = list(_json_differences(recorded["body"], made["body"], ()))
    more = len(found) - MAX_DIFFERENCES
    return [*found[:MAX_DIFFERENCES], *([f"… and {more} more"] if more > 0 else [])]


def _read(path: Path) -> list[dict[str, Any]]:
    """The exchanges in a file.

    Raises:
        CassetteError: It is no cassette.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["format"] != FORMAT:
            problem = f"its format is {content['format']!r}, and this version reads {FORMAT}"
            raise CassetteError(f"{path}: {problem}")
        exchanges: list[dict[str, Any]] = content["exchanges"]
        for exchange in exchanges:
            _line(exchange["request"])
            _answer(exchange["response"], "")
    except OSError as error:
        raise CassetteError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        problem = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise CassetteError(f"{path} is not a cassette: {problem}") from error
    return exchanges


def _write(path: Path, exchanges: list[dict[str, Any]]) -> None:
    """Write a file, whole or not at all."""
    content = {"exchanges": exchanges, "format": FORMAT}
    text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(f"{text}\n", "utf-8")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise CassetteError(f"{path} cannot be written: {error.strerror or error}") from error


def _answer(response: dict[str, Any], base_url: str) -> _Parts:
    """A recorded response, as if it came from that address."""
    status = int(response["status"])
    if not 200 <= status <= 599:
        raise ValueError(f"a response has the status {status}")
    addressed = _addressed(response, base_url)
    headers = [(str(name), str(value)) for name, value in addressed["headers"].items()]
    match addressed:
        case {"body": body}:
            return status, headers, json.dumps(body).encode()
        case {"text": str(text)}:
            return status, headers, text.encode()
        case {"base64": str(text)}:
            return status, headers, base64.b64decode(text, validate=True)
    return status, headers, b""


def _addressed(value: Any, base_url: str) -> Any:
    """A value with an address in place of what stands for it."""
    match value:
        case dict():
            return {name: _addressed(inner, base_url) for name, inner in value.items()}
        case list():
            return [_addressed(inner, base_url) for inner in value]
        case str():
            return value.replace(BASE_URL, base_url)
    return value


def _unaddressed(text: str, base_url: str) -> str:
    """A text without the address of the server, which differs from run to run."""
    # Not where it goes on: another port may begin with the same digits.
    return re.sub(rf"{re.escape(base_url)}(?![\w.:-])", BASE_URL, text)


def _stored(
    body: bytes | None, base_url: str, method: str, target: str, *, is_response: bool = False
) -> dict[str, Any]:
    """A body without secrets, as JSON where it is, so that a file can be read and compared."""
    if not body:
        return {}
    try:
        text = body.decode()
    except UnicodeDecodeError:
        if masked := _native.mask_body("", body, method, target, is_response):
            return {"text": _unaddressed(masked, base_url)}
        return {"base64": base64.b64encode(body).decode()}
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refused)
        # What is beyond a float, or half of a surrogate pair, is not written again.
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        masked = _native.mask_body("", body, method, target, is_response)
        return {"text": _unaddressed(masked or text, base_url)}
    return {"body": _stored_value(value, base_url, method, target, is_response=is_response)}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if twice := [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]:
        raise ValueError(f"{twice[0]!r} is there twice")
    return dict(pairs)


def _refused(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _overlaid(value: Any, masked: Any, base_url: str) -> Any:
    """Return the masked texts and zeros of a value; its other numbers keep all their digits."""
    match value:
        case dict():
            return {name: _overlaid(held, masked[name], base_url) for name, held in value.items()}
        case list():
            pairs = zip(value, masked, strict=True)
            return [_overlaid(held, masking, base_url) for held, masking in pairs]
        case str():
            return _unaddressed(masked, base_url)
        case bool() | None:
            return value
    return 0 if masked == 0 else value


def _comparable(request: dict[str, Any]) -> dict[str, Any]:
    """Return a request as it is compared, masked by the rules of this version.

    Cassettes of earlier versions have zeros below secret names, and texts that are masked now.
    """
    known = {**request, "target": mask.uri(request["target"])}
    call = (known["method"], known["target"])
    if "body" in known:
        known["body"] = _without_numbers(_stored_value(known["body"], "", *call))
    if isinstance(text := known.get("text"), str):
        known["text"] = _native.mask_body("", text.encode(), *call) or text
    return known


def _without_numbers(value: Any, *, secret: bool = False) -> Any:
    match value:
        case dict():
            return {
                name: _without_numbers(held, secret=secret or is_secret(name))
                for name, held in value.items()
            }
        case list():
            return [_without_numbers(held, secret=secret) for held in value]
        case int() | float() if secret and not isinstance(value, bool):
            return 0
    return value


def _stored_value(
    value: Any, base_url: str, method: str, target: str, *, is_response: bool = False
) -> Any:
    """Return a JSON value of the same form without secrets and without the server's address."""
    text = json.dumps(value, ensure_ascii=False)
    masked = _native.mask_call(text, method, target, is_response)
    if masked is None:
        return mask.MASK
    return _overlaid(value, json.loads(masked), base_url)
