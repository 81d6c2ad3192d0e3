"""Traffic policies from Python: the cases of `tests/data/policy`, and what only Python does."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cases import DATA, read_yaml
from ginnel import ValidationError, policy
from ginnel.policy import PolicyError, Problem, Report, Trial

CASES = sorted((DATA / "policy").glob("*.yaml"))
RUNS = [path for path in CASES if path.stem.startswith("run_")]
DENY = {"on_http_request": [{"name": "all", "actions": [{"type": "deny"}]}]}


def read(path: Path) -> Any:
    case = read_yaml(path)
    assert isinstance(case, dict)
    kind: dict[str, Any] = {"edge": case["scope"] in ("https_route", "tcp_edge")}
    kind["protocol"] = "tcp" if case["scope"].startswith("tcp") else "http"
    return {**case, "kind": kind}


def run(trial: Trial, exchange: dict[str, Any]) -> Report:
    given = {name: value for name, value in exchange.items() if name != "expect"}
    given |= given.pop("connection", {})
    if "after" in given:
        number, unit = re.fullmatch(r"(\d+)([sm])", given["after"]).groups()  # type: ignore[union-attr]
        given["after"] = int(number) * {"s": 1, "m": 60}[unit]
    return trial.run(**given)


def plain(report: Any) -> Any:
    """A report as cases write it: headers joined, and the names of the rules that matched."""
    if isinstance(report, Report):
        fields = {name: plain(getattr(report, name)) for name in report.__slots__}
        return {**fields, "matched": [rule.name for rule in report.matched]}
    if hasattr(report, "__slots__"):
        return {name: plain(getattr(report, name)) for name in report.__slots__}
    if isinstance(report, dict):
        return {name: plain(value) for name, value in report.items()}
    if isinstance(report, tuple) and all(isinstance(it, str) for it in report) and report:
        return ", ".join(report)
    return [plain(it) for it in report] if isinstance(report, (list, tuple)) else report


def differences(place: str, found: Any, expected: Any) -> list[str]:
    """Where `found` is not what is expected; of a mapping only the named fields count."""
    if isinstance(found, dict) and isinstance(expected, dict):
        return [
            difference
            for name, value in expected.items()
            for difference in differences(f"{place}.{name}", found.get(name), value)
        ]
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        return [
            difference
            for index, (one, other) in enumerate(zip(found, expected, strict=True))
            for difference in differences(f"{place}[{index}]", one, other)
        ]
    return [] if found == expected else [f"{place} is {found!r}, not {expected!r}"]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_case_has_its_problems(path: Path) -> None:
    case = read(path)
    if not isinstance(case["document"], dict):
        case["document"] = json.dumps(case["document"])

    problems = policy.check(case["document"], **case["kind"])

    found = [{"code": problem.code, "place": problem.place} for problem in problems]
    assert found == case.get("problems", [])


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_a_case_ends_as_it_says(path: Path) -> None:
    case = read(path)
    begin = datetime.fromisoformat(case["begin"]) if "begin" in case else None
    trial = Trial(case["document"], begin=begin, **case["kind"])

    for index, exchange in enumerate(case["exchanges"]):
        report = run(trial, exchange)

        assert differences(f"exchange {index}", plain(report), exchange["expect"]) == []


def test_a_report_says_what_each_rule_did() -> None:
    report = policy.test(DENY, request="https://example.com/admin", client_ip="192.0.2.1")

    assert report.outcome == "respond"
    assert report.response is not None
    assert report.response.status == 403
    assert report.decision is not None
    assert (report.decision.rule, report.decision.action) == (0, "deny")
    assert [rule.name for rule in report.matched] == ["all"]
    assert report.rules[0].actions[0].ended
    assert pickle.loads(pickle.dumps(report)) == report


def test_headers_may_come_several_times() -> None:
    rule = {"actions": [{"type": "add-headers", "config": {"headers": {"x-a": "2"}}}]}

    report = policy.test(
        {"inbound": [rule]}, request={"headers": {"X-A": ["0", "1"]}}, response=204
    )

    assert report.request is not None
    assert report.request.headers["x-a"] == ("0", "1", "2")
    assert report.response is not None
    assert report.response.status == 204


def test_a_document_may_be_a_text_or_a_file(tmp_path: Path) -> None:
    text = "on_http_request:\n  - actions:\n      - type: deny\n        config: {status_code: 99}\n"
    file = tmp_path / "policy.yaml"
    file.write_text(text)

    [problem] = policy.check(text)

    assert problem == Problem(
        place="on_http_request[0].actions[0].config.status_code",
        code=2215,
        message="status_code must be from 200 to 599",
    )
    assert str(problem).endswith("must be from 200 to 599 (2215)")
    assert policy.check(file) == [problem]
    assert policy.check(json.dumps(DENY)) == []


@pytest.mark.parametrize(
    "text", ["", "[", "{", "a: &a [*a, *a]", "a: b: c", '{"on_http_request": [', "\0", "- x", "7"]
)
def test_what_cannot_be_read_is_a_problem(text: str) -> None:
    assert [problem.code for problem in policy.check(text)] == [2236]


def test_a_text_that_unfolds_is_refused() -> None:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]

    assert [problem.code for problem in policy.check("\n".join(lines))] == [2236]


def test_a_policy_with_problems_cannot_be_tried() -> None:
    with pytest.raises(PolicyError) as caught:
        policy.test({"on_http_request": [{"actions": []}]})

    assert isinstance(caught.value, ValidationError)
    assert [problem.code for problem in caught.value.problems] == [2206]
    assert pickle.loads(pickle.dumps(caught.value)).problems == caught.value.problems


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"request": "no url"}, "request.url"),
        ({"request": {"method": "A B"}}, "request.method"),
        ({"request": {"headers": {"x": "a\r\nb: c"}}}, "request.headers"),
        ({"response": 1000}, "response.status"),
        ({"client_ip": "here"}, "IP address"),
        ({"ip_policies": {"ipp_1": {"allow": ["x"]}}}, "ip_policies"),
        ({"protocol": "udp"}, "protocol"),
        ({"begin": datetime(2024, 1, 1)}, "begin"),
    ],
)
def test_what_is_no_traffic_is_refused(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        policy.test(DENY, **given)


def test_the_clock_may_be_set() -> None:
    rule = {"expressions": ["time.now.startsWith('2030')"], "actions": [{"type": "deny"}]}

    report = policy.test({"inbound": [rule]}, begin=datetime(2030, 1, 1, tzinfo=UTC))

    assert report.outcome == "respond"


def command(*arguments: str, text: str = "") -> tuple[int, str, str]:
    called = [sys.executable, "-m", "ginnel", "policy", *arguments]
    done = subprocess.run(called, input=text, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_the_command_checks(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(json.dumps(DENY))
    bad.write_text("on_http_request: [{actions: []}]")

    assert command("check", str(good)) == (0, f"{good}: no problems\n", "")
    code, told, complaint = command("check", str(bad))
    assert code == 1
    assert told.startswith(f"{bad}: on_http_request[0].actions: a rule needs")
    assert complaint == f"ginnel: {bad} has one problem\n"
    assert command("check", str(good), "--protocol", "tcp")[0] == 1
    assert command("check", str(good), "--edge")[0] == 0
    assert command("check", str(tmp_path / "gone"))[0] == 2


def test_the_command_tries() -> None:
    request = ("--url", "https://example.com/a", "-H", "x-a: 1", "--client-ip", "192.0.2.1")
    code, told, _ = command("test", "-", *request, text=json.dumps(DENY))

    assert code == 0
    assert told == (
        'on_http_request[0] "all" matched\n  deny and ended the phase\nthe visitor sees: 403\n'
    )
    code, told, _ = command("test", "-", "--output", "json", text=json.dumps(DENY))
    assert code == 0
    assert json.loads(told)["outcome"] == "respond"
    assert command("test", "-", "--url", "no url", text=json.dumps(DENY))[0] == 2
    assert command("test", "-", text="{}")[0] == 0
    assert command("test", "-", text="[]")[0] == 1
