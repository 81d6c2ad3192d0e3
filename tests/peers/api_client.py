"""Calls every method of the generated client `ngrok-api` against a service in this process.

    python tests/peers/api_client.py [RECORD]

The client is installed with pip into a folder below `target/`, once. Each method is called with
arguments that its callers could give, on rows that are there, and is one of:

- works: it succeeds, and what it says it did can be observed;
- refused: status 501 or 4xx with a code and a message that says why;
- broken: everything else, such as a path that is not known or a change that has no effect.

Prints what does not work, writes the record for the table of `table.py`, and fails if something
is broken that `EXPLAINED` does not name.
"""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import ginnel
from api_run import Outcome, Run
from ginnel.service_settings import ServiceSettings
from records import ABSENT, FOLDER, Record

VERSION = "0.19.0"

NO_BODY = "it has its effect, but the client takes 204, which is documented, for a failure"
EXPLAINED = {"tunnel_sessions.restart": NO_BODY, "tunnel_sessions.stop": NO_BODY}
"""Methods that may be broken, and why."""


def client_module() -> ModuleType:
    """The client, which shares its name with the vendor's agent library."""
    folder = FOLDER / f"ngrok-api-{VERSION}"
    if not (folder / "ngrok").exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
        subprocess.run([*pip, f"ngrok-api=={VERSION}"], check=True)
    sys.path.insert(0, str(folder))
    return importlib.import_module("ngrok")


def methods(target: Any, path: str = "") -> Iterator[tuple[str, Callable[..., Any]]]:
    """All methods of the client's services, as `edges.https.create`."""
    for name in dir(target):
        if name.startswith("_") or name in ("http_client", *dir(tuple)):
            continue
        value = getattr(target, name)
        if inspect.ismethod(value):
            yield f"{path}{name}", value
        else:
            yield from methods(value, f"{path}{name}.")


def settings() -> ServiceSettings:
    """Settings without which some methods are refused."""
    known = ServiceSettings.__annotations__
    chosen = {"secrets_key": bytes(range(32)).hex()}
    return cast(ServiceSettings, {name: it for name, it in chosen.items() if name in known})


def outcomes() -> Run:
    module = client_module()
    with ginnel.Service(settings=settings()) as service:
        client = module.Client(service.api_key, service.url)
        run = Run(service, module, client, dict(methods(client)))
        run.all()
    return run


def reason(outcome: Outcome) -> str:
    return f"{outcome.code}: {outcome.text}" if outcome.code else outcome.text


def cause(method: str, run: Run) -> str:
    """Why a method does not work, as one reason for several methods."""
    outcome = run.outcomes[method]
    if method in EXPLAINED:
        return EXPLAINED[method]
    if outcome.kind == "refused":
        return outcome.cause
    if not outcome.is_absent:
        return f"`{method}` fails"
    service = method.rpartition(".")[0]
    others = [it for name, it in run.outcomes.items() if name.rpartition(".")[0] == service]
    return f"`{service if all(it.is_absent for it in others) else method}`{ABSENT}"


def record(run: Run) -> Record:
    kinds = Counter(outcome.kind for outcome in run.outcomes.values())
    others = {name: it for name, it in run.outcomes.items() if it.kind != "works"}
    causes = Counter(cause(name, run) for name in others)
    return Record(
        peer="ngrok-api",
        version=VERSION,
        what="methods",
        passes=kinds["works"],
        total=len(run.outcomes),
        others=dict(causes.most_common()),
        details={name: {"kind": it.kind, "reason": reason(it)} for name, it in others.items()}
        | {"arguments": run.arguments},
    )


def report(run: Run) -> None:
    for kind in ("refused", "broken"):
        chosen = {name: it for name, it in run.outcomes.items() if it.kind == kind}
        print(f"{kind}:")
        for name, outcome in sorted(chosen.items()):
            explained = EXPLAINED.get(name)
            print(f"  {name}: {reason(outcome)}" + (f" ({explained})" if explained else ""))
    print("arguments:")
    for argument, words in run.arguments.items():
        print(f"  {argument}: {words}")
    print(dict(Counter(outcome.kind for outcome in run.outcomes.values())), len(run.outcomes))


def main() -> None:
    run = outcomes()
    report(run)
    print(record(run).write(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
    broken = {name for name, outcome in run.outcomes.items() if outcome.kind == "broken"}
    sys.exit(bool(broken - set(EXPLAINED)))


if __name__ == "__main__":
    main()
