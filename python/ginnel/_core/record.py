"""What all results have in common."""

from __future__ import annotations

from .. import _native
from .dataclass import Dataclass
from .lazy import render

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime
    from typing import Any, ClassVar, Self

SECRET = {"secret": True}
"""The metadata of a field that is kept out of `repr`."""


def _lazy(slot: Any, wire: type, read: Callable[[Any], object]) -> property:
    """A slot whose value stays as it came over the wire and is read when asked for."""

    def get(self: object) -> object:
        value = slot.__get__(self)
        return read(value) if type(value) is wire else value

    return property(get, slot.__set__, doc=slot.__doc__)


# What few programs need is imported when it is: the first call is shorter for it.


def _moment(text: str) -> datetime:
    """The moment of an RFC 3339 timestamp; a leap second is the first second after it."""
    from datetime import datetime, timedelta

    try:
        return datetime.fromisoformat(text)
    except ValueError:
        leap = text[17:19] == "60"
        known = f"{text[:17]}59{text[19:]}" if leap else text
        return datetime.fromisoformat(known.upper()) + timedelta(seconds=leap)


def _bytes(text: str) -> bytes:
    from base64 import b64decode

    return b64decode(text)


_LAZY: dict[str, tuple[type, Callable[[Any], object]]] = {
    "datetime": (str, _moment),
    "bytes": (str, _bytes),
    "Mapping[str, object]": (bytes, _native.parse),
}


class _Masked:
    """Stands for a secret in what is printed."""

    def __repr__(self) -> str:
        return "***"


_MASKED = _Masked()


class Record(Dataclass):
    """A result: a frozen dataclass that knows its form on the wire.

    Fields that were absent are None. Fields that this version does not know are in `extra`.
    """

    __slots__ = ("_nulls",)

    _slots: ClassVar[dict[str, Any]] = {}

    @property
    def extra(self) -> Mapping[str, object]:
        """The fields of the response that this version does not know."""
        return {}

    def __init_subclass__(cls) -> None:
        # `dataclass` makes the class a second time, now with its slots.
        names = cls.__dict__.get("__slots__")
        if names is None:
            return
        cls._slots = {name: cls.__dict__[name] for name in names}
        cls._slots["_nulls"] = Record.__dict__["_nulls"]
        for name, annotation in cls.__annotations__.items():
            lazy = name in names and _LAZY.get(str(annotation).removesuffix(" | None"))
            if lazy and (name == "extra" or lazy[0] is str):
                setattr(cls, name, _lazy(cls._slots[name], *lazy))

    @classmethod
    def from_dict(cls, wire: Mapping[str, object]) -> Self:
        """Make an instance of its form on the wire, as `to_dict` gives it."""
        import json

        made: Self = _native.decode(cls, json.dumps(wire).encode())
        return made

    def to_dict(self) -> dict[str, object]:
        """The form on the wire, lossless: what was absent is left out, what was null is None."""
        nulls = getattr(self, "_nulls", 0)
        wire: dict[str, object] = {}
        for at, (name, slot) in enumerate(self._slots.items()):
            if name in ("extra", "_nulls"):
                continue
            value = slot.__get__(self)
            if nulls >> at & 1:
                wire[name] = None
            elif value is not None:
                wire[name] = _to_wire(value)
        wire.update(self.extra)
        return wire

    def to_json(self) -> str:
        """The form on the wire as JSON text."""
        import json

        return json.dumps(self.to_dict(), ensure_ascii=False)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).from_dict, (self.to_dict(),)

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({', '.join(shown)})"

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        """The fields that have a value; a mask stands for secrets."""
        from dataclasses import fields

        for field in fields(self):
            value = getattr(self, field.name)
            if value is None or (field.name == "extra" and not value):
                continue
            secret = field.metadata.get("secret") or field.name == "extra"
            yield field.name, _MASKED if secret else without_secrets(value)

    def _repr_html_(self) -> str:
        return render("results.card", self)


def without_secrets(value: object) -> object:
    """Return a value of a field as it is printed: policies, headers and addresses have secrets."""
    match value:
        case str():
            return _native.mask_text(value)
        case dict():
            from .._capture import mask

            return mask.json(value)
        case list() | tuple():
            return [without_secrets(item) for item in value]
    return value


def _to_wire(value: object) -> object:
    match value:
        case Record():
            return value.to_dict()
        case bytes():
            from base64 import b64encode

            return b64encode(value).decode()
        case list() | tuple():
            return [_to_wire(item) for item in value]
        case dict():
            return {key: _to_wire(item) for key, item in value.items()}
        case _ if hasattr(value, "isoformat"):
            return str(value.isoformat()).replace("+00:00", "Z")
        case _:
            return value
