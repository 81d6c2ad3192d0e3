"""What is secret in captured traffic, and what stands for it when it is shown.

The native module decides, as for the agent's page. Too much is masked rather than too little:
whoever needs the bytes has `raw`.
"""

from __future__ import annotations

from json import dumps

from .._native import (
    is_secret,
    is_visible_list,
    mask_header,
    mask_parameters,
    mask_target,
    mask_text,
    secret_members,
)

__all__ = ["MASK", "header", "json", "parameters", "text", "uri"]

MASK = "•••"
"""Stands for a secret."""

text = mask_text
header = mask_header
uri = mask_target
parameters = mask_parameters


def json(value: object) -> object:
    """Return a JSON value without secrets.

    Below a secret name and in a pair with one, numbers, booleans, null and lists of them stay, and
    everything else is masked.
    """
    match value:
        case dict():
            hidden = secret_members(
                [(str(name), it if isinstance(it, str) else None) for name, it in value.items()]
            )
            return {
                name: _concealed(inner) if is_hidden else json(inner)
                for (name, inner), is_hidden in zip(value.items(), hidden, strict=True)
            }
        case list() if value and all(_is_pair(inner) for inner in value):
            return [
                [text(name), _concealed(inner) if is_secret(name) else json(inner)]
                for name, inner in value
            ]
        case list():
            return [json(inner) for inner in value]
        case str():
            return text(value)
        case _:
            return value


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)


def _concealed(value: object) -> object:
    match value:
        case None | "" | bool() | int() | float():
            return value
        case list() if _is_visible(value):
            return value
        case _:
            return MASK


def _is_visible(value: list[object]) -> bool:
    try:
        return is_visible_list(dumps(value, default=str))
    except (TypeError, ValueError, RecursionError):
        return False
