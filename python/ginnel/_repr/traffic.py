"""What was decided on traffic, shown: events of a service, reports of policies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .._capture import mask
from .._capture.body import LONGEST, READ, address, cut, field_value, masked_body, visible
from .html import (
    BAD,
    GOOD,
    MOVED,
    ODD,
    badge,
    block,
    code,
    folded,
    frame,
    grid,
    line,
    pairs,
    quiet,
    sides,
    status,
    strong,
    text,
)
from .text import LINE, moment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..policy import Action, Decision, Problem, Report, Request, Response, Rule
    from ..traffic import TrafficEvent

_OUTCOMES = {"continue": GOOD, "forward": MOVED, "respond": ODD, "close": BAD}


def event_line(event: TrafficEvent) -> str:
    """An event in one line."""
    told = f"{moment(event.time)}: {_asked(event)} -> {_became(event)}"
    why = f" by {' '.join(_why(event))}" if _why(event) else ""
    return f"<TrafficEvent {visible(cut(told + why, LINE))} in {event.duration_ms:,.1f} ms>"


def event_card(event: TrafficEvent) -> str:
    """An event as a card."""
    found = {name: getattr(event, name) for name in ("edge_id", "route_id", "backend_id")}
    rows = [(name, code(value)) for name, value in found.items() if value]
    why = " ".join(_why(event))
    return frame(
        line(
            strong(event.method or event.proto),
            code(_address(event)),
            status(event.status, _became(event)),
            quiet(f"in {event.duration_ms:,.1f} ms"),
        ),
        line(quiet(f"{moment(event.time)}, {event.proto} from {event.peer}")),
        line(quiet("decided by"), code(why)) if why else "",
        pairs(rows),
        block(_logs(event.logs)),
    )


def report_line(report: Report) -> str:
    """A report in one line."""
    matched = sum(rule.matched for rule in report.rules)
    told = f"{_outcome(report)}{_decided(report.decision)}, {matched} of {len(report.rules)} rules"
    return f"<Report: {visible(told)} matched>"


def report_lines(report: Report) -> str:
    """A report with what each rule and each action did, and what came of it."""
    parts = [report_line(report), *(f"  {visible(_did(rule))}" for rule in report.rules)]
    if report.request is not None:
        parts += ["", "upstream sees", *_message_lines(report.request)]
    if report.response is not None:
        parts += ["", "visitor sees", *_message_lines(report.response)]
    logs = _logs(report.logs)
    return "\n".join(parts + (["", "logs", logs] if logs else []))


def report_card(report: Report) -> str:
    """A report as a card."""
    title = line(
        badge(_outcome(report), _OUTCOMES.get(report.outcome, ODD)),
        text(_decided(report.decision).strip()),
        quiet(f"forwarded to {report.forwarded_to}" if report.forwarded_to else ""),
    )
    seen = []
    if report.request is not None:
        seen.append(_message_card("Upstream sees", report.request))
    if report.response is not None:
        seen.append(_message_card("Visitor sees", report.response))
    rules = [_rule_row(rule) for rule in report.rules]
    columns = ("rule", "name", "matched", "actions")
    return frame(
        title,
        grid(columns, rules, "Rules") if rules else line(quiet("no rule was evaluated")),
        sides(*seen) if seen else "",
        line(strong("Logs")) + block(_logs(report.logs)) if report.logs else "",
    )


def problems_card(problems: Sequence[Problem]) -> str:
    """What is wrong with a document."""
    if not problems:
        return frame(badge("nothing is wrong", GOOD))
    rows = [
        {"place": code(one.place), "code": text(str(one.code)), "problem": text(one.message)}
        for one in problems
    ]
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return frame(badge(count, BAD), grid(("place", "code", "problem"), rows, "Problems"))


def _asked(event: TrafficEvent) -> str:
    return f"{event.method or event.proto} {_address(event)}"


def _address(event: TrafficEvent) -> str:
    return f"{event.host or event.peer}{address(event.path or '')}"


def _became(event: TrafficEvent) -> str:
    if event.status is None:
        return "closed" if event.method or event.module else "carried"
    return " ".join(filter(None, (str(event.status), event.code)))


def _why(event: TrafficEvent) -> list[str]:
    return [why for why in (event.module, event.rule, event.action) if why]


def _outcome(report: Report) -> str:
    response = report.response
    return f"{report.outcome} {response.status}" if response else report.outcome


def _decided(decision: Decision | None) -> str:
    if decision is None:
        return ""
    name = f" {decision.name!r}" if decision.name else ""
    return f" by {decision.action} of {decision.phase}[{decision.rule}]{name}"


def _did(rule: Rule) -> str:
    name = f" {rule.name!r}" if rule.name else ""
    if rule.error is not None:
        did = f"skipped, {rule.error}"
    else:
        did = "; ".join(["matched" if rule.matched else "did not match", *_actions(rule)])
    return f"{rule.phase}[{rule.index}]{name}: {did}"


def _actions(rule: Rule) -> Iterator[str]:
    for action in rule.actions:
        ended = " ended the phase" if action.ended else ""
        result = f" {_json(action.result)}" if action.result else ""
        failed = f" failed: {action.error}" if action.error is not None else ""
        yield f"{action.type}{ended}{failed}{result}"


def _rule_row(rule: Rule) -> dict[str, str]:
    if rule.error is not None:
        matched = badge("skipped", ODD) + f" {text(rule.error)}"
    else:
        matched = badge("yes", GOOD) if rule.matched else quiet("no")
    return {
        "rule": code(f"{rule.phase}[{rule.index}]"),
        "name": text(rule.name),
        "matched": matched,
        "actions": "".join(map(_action, rule.actions)),
    }


def _action(action: Action) -> str:
    return line(
        code(action.type),
        quiet("ended the phase" if action.ended else ""),
        badge("failed", BAD) + f" {text(action.error)}" if action.error is not None else "",
        quiet(_json(action.result) if action.result else ""),
    )


def _message_card(title: str, message: Request | Response) -> str:
    headers = list(_headers(message.headers))
    shown = line(strong(title), code(_first(message)))
    if headers:
        count = f"{len(headers)} header{'s' if len(headers) > 1 else ''}"
        shown += folded(count, pairs((name, text(value)) for name, value in headers))
    return shown + block(_body(message))


def _message_lines(message: Request | Response) -> list[str]:
    head = [visible(_first(message))]
    head += [visible(f"{name}: {value}") for name, value in _headers(message.headers)]
    body = _body(message)
    return [f"  {told}" for told in [*head, *(["", *body.splitlines()] if body else [])]]


def _first(message: Request | Response) -> str:
    from ..policy import Request

    if isinstance(message, Request):
        return f"{message.method} {address(message.url)}"
    code = f" ERR_NGROK_{message.code}" if message.code is not None else ""
    return f"{message.status}{code}"


def _headers(headers: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    for name, values in headers.items():
        for value in values:
            yield name, field_value(name, value)


def _body(message: Request | Response) -> str:
    """The beginning of a body without secrets."""
    body = message.body
    return visible(_short(masked_body(body[:READ])))


def _logs(logs: Sequence[object]) -> str:
    return "\n".join(_json(log) for log in logs)


def _json(value: object) -> str:
    """A value in JSON without secrets, on one line."""
    return visible(_short(json.dumps(mask.json(value), ensure_ascii=False, default=str)))


def _short(told: str) -> str:
    return told if len(told) <= LONGEST else f"{told[:LONGEST]}…"
