"""Dataclasses that are completed when somebody looks.

To make a dataclass takes longer than to call the API, and nearly all programs only read attributes
of results, which the core fills in. So a class has its slots from the start, and gets what
`dataclasses` writes for it when an instance is constructed, compared or hashed, or when somebody
looks at its fields. Programs that do none of this do not import `dataclasses`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import Field, dataclass, field
    from typing import Any, ClassVar
else:

    def dataclass(**options):
        """`dataclasses.dataclass`, for later."""

        def make(body):
            namespace = dict(vars(body))
            names = tuple(namespace["__annotations__"])
            defaults = {name: namespace.pop(name) for name in names if name in namespace}
            for name in ("__dict__", "__weakref__"):
                namespace.pop(name, None)
            namespace |= {"__qualname__": body.__qualname__, "__slots__": names}
            namespace["_completion"] = _Completion(options, defaults)
            return type(body)(body.__name__, body.__bases__, namespace)

        return make

    def field(**options):
        """`dataclasses.field`, for later."""
        return _Field(options)


__all__ = ["Dataclass", "dataclass", "field"]


class _Field:
    """What `field` was called with."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options


class _Completion:
    """What `dataclasses` needs to know of a class."""

    # The last tells that a class is complete.
    WRITTEN = (
        "__dataclass_params__",
        "__eq__",
        "__hash__",
        "__init__",
        "__match_args__",
        "__replace__",
        "__dataclass_fields__",
    )

    def __init__(self, options: dict[str, Any], defaults: dict[str, object]) -> None:
        self.options = options
        self.defaults = defaults

    def complete(self, cls: type) -> None:
        """Write what `dataclasses` writes. Twice is fine: threads may come here together."""
        import dataclasses

        body: dict[str, Any] = {"__annotations__": cls.__annotations__, "__doc__": cls.__doc__}
        for name, default in self.defaults.items():
            if isinstance(default, _Field):
                default = dataclasses.field(**default.options)
            body[name] = default
        body |= {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
        twin: type = dataclasses.dataclass(**self.options)(type(cls.__name__, (), body))
        for name in self.WRITTEN:
            if name in vars(twin):
                setattr(cls, name, vars(twin)[name])


def _completed(cls: type) -> Any:
    """The class that is or was completed for `cls`: itself, or one that it inherits from."""
    for base in cls.__mro__:
        completion = vars(base).get("_completion")
        if completion is not None:
            if "__dataclass_fields__" not in vars(base):
                completion.complete(base)
            return base
    return None


class _Later:
    """An attribute of a class that is there as soon as somebody looks."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, cls: type) -> Any:
        completed = _completed(cls)
        if completed is None or self.name not in vars(completed):
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {self.name!r}")
        return getattr(completed if instance is None else instance, self.name)


class Dataclass:
    """The base of classes that are made with `dataclass` of this module."""

    __slots__ = ()

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    else:
        __dataclass_fields__ = _Later()
        __dataclass_params__ = _Later()
        __match_args__ = _Later()
        __replace__ = _Later()
        # There is none; who asks wants that of `__init__`.
        __signature__ = _Later()

        def __init__(self, *_arguments, **values):
            completed = _completed(type(self))
            (completed or object).__init__(self, *_arguments, **values)

        def __eq__(self, other):
            completed = _completed(type(self))
            return (completed or object).__eq__(self, other)

        def __hash__(self):
            completed = _completed(type(self))
            return (completed or object).__hash__(self)

        def __setattr__(self, name, value):
            _refuse_change("assign to", self, name)
            super().__setattr__(name, value)

        def __delattr__(self, name):
            _refuse_change("delete", self, name)
            super().__delattr__(name)


def _refuse_change(change: str, instance: object, name: str) -> None:
    """As `dataclasses` refuses it: the fields, and all that instances of the class itself have."""
    completed = _completed(type(instance))
    if completed is None:
        return None
    if type(instance) is completed or name in completed.__dataclass_fields__:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot {change} field {name!r}")
    return None
