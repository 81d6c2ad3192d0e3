"""What rules see of the programs of visitors: `req.user_agent`."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import pytest

import ginnel
from recorder import get

HOST = "agents.example.test"
NAMES = [
    "name",
    "version",
    "os",
    "os_version",
    "device",
    "url",
    "is_mobile",
    "is_tablet",
    "is_desktop",
    "is_bot",
]
IPAD = (
    "Mozilla/5.0 (iPad; CPU OS 16_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    "Version/16.6 Mobile/15E148 Safari/604.1"
)
PHONE = (
    "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/126.0.0.0 Mobile Safari/537.36"
)
FIREFOX = "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:127.0) Gecko/20100101 Firefox/127.0"
ROBOT = "Mozilla/5.0 (compatible; GPTBot/1.2; +https://openai.com/gptbot)"


def endpoint(service: ginnel.Service, *rules: dict[str, Any]) -> None:
    with service.client() as remote:
        policy = json.dumps({"on_http_request": rules})
        remote.endpoints.create(url=f"http://{HOST}", traffic_policy=policy)


def respond(content: str) -> dict[str, Any]:
    config = {"status_code": 200, "content": content}
    return {"actions": [{"type": "custom-response", "config": config}]}


def ask(service: ginnel.Service, *lines: str) -> tuple[int, bytes]:
    assert service.http_url is not None
    status, _, body = get(urlsplit(service.http_url).netloc, HOST, "/", *lines)
    return status, body


@pytest.mark.parametrize(
    ("agent", "texts", "kind"),
    [
        (IPAD, ["Safari", "16.6", "iOS", "16.6", "iPad", ""], "tablet"),
        (PHONE, ["Chrome", "126.0.0.0", "Android", "14", "Pixel 8", ""], "mobile"),
        (FIREFOX, ["Firefox", "127.0", "Windows", "10.0", "", ""], "desktop"),
        (ROBOT, ["GPTBot", "1.2", "", "", "", "https://openai.com/gptbot"], "bot"),
        ("curl/8.5.0", ["curl", "8.5.0", "", "", "", ""], None),
        (None, ["", "", "", "", "", ""], None),
    ],
)
def test_rules_see_each_part_of_the_header(
    service: ginnel.Service, agent: str | None, texts: list[str], kind: str | None
) -> None:
    content = "\n".join(f"${{json.encode(req.user_agent.{name})}}" for name in NAMES)
    endpoint(service, respond(content))

    _, body = ask(service, *([f"User-Agent: {agent}"] if agent else []))

    seen = [json.loads(line) for line in body.splitlines()]
    assert seen[:6] == texts
    assert dict(zip(("mobile", "tablet", "desktop", "bot"), seen[6:], strict=True)) == {
        one: one == kind for one in ("mobile", "tablet", "desktop", "bot")
    }


def test_robots_are_turned_away_by_an_expression(service: ginnel.Service) -> None:
    deny = {"expressions": ["req.user_agent.is_bot"], "actions": [{"type": "deny"}]}
    endpoint(service, deny, respond("${req.user_agent}"))

    assert ask(service, f"User-Agent: {ROBOT}")[0] == 403
    assert ask(service, f"User-Agent: {FIREFOX}") == (200, FIREFOX.encode())
