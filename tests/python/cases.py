"""Cases of tests, which are YAML files in `tests/data`."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data"

# The package has no types.
yaml: Any = importlib.import_module("yaml")


def loader() -> Any:
    """Reads YAML as the service does: truths are `true` and `false` alone, and times are texts."""
    kinds = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:bool")
    resolvers = yaml.SafeLoader.yaml_implicit_resolvers.items()
    kept = {first: [it for it in known if it[0] not in kinds] for first, known in resolvers}
    made: Any = type("Loader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": kept})
    made.add_implicit_resolver(kinds[1], re.compile("^(?:true|false)$"), list("tf"))
    return made


LOADER = loader()


def read_yaml(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), LOADER)
