"""What is secret in captured traffic, and what stands for it when it is shown.

The native module decides, as for the agent's page. Too much is masked rather than too little:
whoever needs the bytes has `raw`.
"""

from __future__ import annotations

from .._native import is_secret, mask_header, mask_parameters, mask_target, mask_text

__all__ = ["MASK", "header", "json", "parameters", "text", "uri"]

MASK = "•••"
"""Stands for a secret."""

text = mask_text
header = mask_header
uri = mask_target
parameters = mask_parameters


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
