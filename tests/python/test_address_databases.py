"""What rules know of the addresses of visitors: what files of the operator say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

import ginnel
import mmdb
from ginnel import Service

HOST = "app.example.test"

HERE = {
    "city": {"names": {"en": "Delft", "nl": "Delft"}},
    "continent": {"code": "EU", "names": {"en": "Europe"}},
    "country": {"iso_code": "NL", "is_in_european_union": True, "names": {"en": "Netherlands"}},
    "location": {
        "accuracy_radius": 20,
        "latitude": 52.5,
        "longitude": 4.25,
        "time_zone": "Europe/Amsterdam",
    },
    "postal": {"code": "2611"},
    "subdivisions": [{"iso_code": "ZH", "names": {"en": "South Holland"}}],
}
SYSTEM = {"autonomous_system_number": 64500, "autonomous_system_organization": "Example"}

LOCATION = {
    "city": "Delft",
    "continent": "Europe",
    "country": "Netherlands",
    "country_code": "NL",
    "latitude": "52.5",
    "longitude": "4.25",
    "metro_code": "",
    "postal_code": "2611",
    "radius": "20",
    "subdivision": "South Holland",
    "timezone": "Europe/Amsterdam",
}
OLDER = ["city", "country", "country_code", "latitude", "longitude", "radius", "subdivision"]


@pytest.fixture
def files(tmp_path: Path) -> Any:
    """Settings with files that know the address of this machine."""
    categories = tmp_path / "categories.csv"
    categories.write_text("127.0.0.0/8, proxy.anonymous.tor\n127.0.0.1,com.example\n# none\n")
    return {
        "geo_database": str(mmdb.write(tmp_path / "geo.mmdb", {"127.0.0.0/8": HERE})),
        "asn_database": str(mmdb.write(tmp_path / "asn.mmdb", {"127.0.0.0/8": SYSTEM})),
        "address_categories": str(categories),
    }


@pytest.fixture
def informed(files: Any) -> Iterator[Service]:
    with Service(settings=files) as service:
        yield service


def respond(body: str, *expressions: str) -> dict[str, Any]:
    action = {"type": "custom-response", "config": {"body": body}}
    return {"expressions": list(expressions), "actions": [action]}


def route(service: Service, *rules: dict[str, Any]) -> None:
    with service.client() as remote:
        edge = remote.edges.https.create(hostports=[f"{HOST}:80"])
        remote.edges.https.routes.create(
            edge.id, match_type="path_prefix", match="/", policy={"inbound": list(rules)}
        )


def get(service: Service) -> str:
    try:
        with service.opener().open(f"http://{HOST}/") as response:
            text: str = response.read().decode()
            return text
    except HTTPError as error:
        with error:
            return str(error.code)


def test_rules_know_where_and_whose_an_address_is(informed: Service) -> None:
    names = [f"conn.client_ip.geo.location.{name}" for name in LOCATION]
    names += [f"conn.geo.{name}" for name in OLDER]
    names += [f"conn.client_ip.as.{name}" for name in ("number", "organization")]
    names += [f"conn.client_ip.{name}" for name in ("is_tor_node", "is_on_blocklist", "categories")]
    names += ["conn.client_ip.geo.location.is_eu"]
    values = ", ".join(names)
    route(informed, respond(f"${{json.encode([{values}])}}"))

    expected = [*LOCATION.values(), *(LOCATION[name] for name in OLDER), 64500, "Example"]
    expected += [True, False, ["com.example", "proxy.anonymous.tor"], True]

    assert json.loads(get(informed)) == expected


def test_rules_decide_by_them(informed: Service) -> None:
    route(
        informed,
        respond("blocked", "conn.client_ip.is_on_blocklist"),
        respond("far", "conn.geo.country_code in ['US', 'CA']"),
        respond(
            "here",
            "conn.geo.country_code == 'NL' && conn.client_ip.as.number == 64500",
            "'com.example' in conn.client_ip.categories",
        ),
    )

    assert get(informed) == "here"


def test_an_address_that_is_in_no_file_is_unknown(tmp_path: Path, files: Any) -> None:
    for key, facts in (("geo_database", HERE), ("asn_database", SYSTEM)):
        files[key] = str(mmdb.write(tmp_path / f"far-{key}", {"192.0.2.0/24": facts}))
    Path(files["address_categories"]).write_text("192.0.2.0/24, com.example\n")
    values = "conn.geo.city, conn.client_ip.as.number, conn.client_ip.categories"
    with Service(settings=files) as service:
        route(service, respond(f"${{json.encode([{values}])}}"))

        assert json.loads(get(service)) == ["", 0, []]


ASKING = {
    "geo_database": "conn.geo.country == 'x'",
    "asn_database": "conn.client_ip.as.number == 1",
    "address_categories": "conn.client_ip.is_tor_node",
}


@pytest.mark.parametrize("missing", ASKING)
def test_a_rule_cannot_ask_what_only_a_missing_file_knows(files: Any, missing: str) -> None:
    expression = ASKING[missing]
    others: Any = {key: path for key, path in files.items() if key != missing}
    with Service(settings=others) as service:
        with pytest.raises(ginnel.BadRequestError, match=f"need {missing}"):
            route(service, respond("x", expression))

        rules = {"on_http_request": [respond("x", expression)]}
        with (
            ginnel.Agent(service) as agent,
            agent.client() as local,
            pytest.raises(ginnel.APIStatusError, match=f"need {missing}"),
        ):
            local.tunnels.start(addr=1, proto="http", name="x", traffic_policy=rules)


def test_a_stored_rule_stays_when_its_file_is_taken_away(tmp_path: Path, files: Any) -> None:
    store = str(tmp_path / "ginnel.db")
    with Service(path=store, settings=files) as service:
        route(service, respond("near", "conn.geo.country_code == 'NL'"), respond("far"))
        assert get(service) == "near"
    with Service(path=store) as service:
        assert get(service) == "far"


def test_visitors_with_ipv6_are_unknown_to_a_database_of_ipv4(files: Any) -> None:
    with Service(settings=files | {"edge_host": "::1"}) as service:
        route(service, respond("${conn.geo.city}/${conn.client_ip.as.number}"))

        assert get(service) == "/0"


@pytest.mark.parametrize("key", ["geo_database", "asn_database", "address_categories"])
def test_a_file_that_is_something_else_ends_the_start(tmp_path: Path, key: str) -> None:
    wrong = tmp_path / "wrong"
    for content in [None, "nothing of the kind\n"]:
        if content:
            wrong.write_text(content)
        settings: Any = {key: str(wrong)}
        with pytest.raises(ginnel.ConfigError, match=key):
            Service(settings=settings).stop()


def test_a_check_reads_the_files(tmp_path: Path, files: Any) -> None:
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("192.0.2.0/24\n")

    def check(path: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ginnel", "serve", "--check"]
        options = ["--address-categories", path]
        return subprocess.run([*command, *options], capture_output=True, text=True, check=False)

    assert check(files["address_categories"]).returncode == 0
    refused = check(str(wrong))
    assert refused.returncode != 0
    assert "line 1 is not a CIDR" in refused.stdout + refused.stderr
