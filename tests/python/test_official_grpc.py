"""The official agent libraries in front of a gRPC service, which their streams carry as HTTP/2."""

from __future__ import annotations

import pytest

import ginnel
from grpc_shop import channel, check, serve, talk_in_turns
from test_official_agent import Official, language

__all__ = ["language"]


@pytest.mark.parametrize("way", ["endpoint", "edge"])
def test_a_local_service_that_speaks_http2_is_reached(way: str, language: str) -> None:
    shop = serve()
    with ginnel.Service(tls_endpoints=True) as service:
        official = Official(service, language)
        try:
            official.connect()
            if way == "endpoint":
                url = official.do(http=shop.port, app_protocol="http2")
            else:
                url = shop_edge(service)
                official.do(labeled=shop.port, labels={"app": "shop"}, app_protocol="http2")

            with channel(service, url) as calls:
                check(calls)
                talk_in_turns(calls)

            refused = official.do(http=shop.port, app_protocol="http3")
            assert "http1 or http2" in refused["error"][1]
        finally:
            official.end()
            shop.stop(None).wait()


def shop_edge(service: ginnel.Service) -> str:
    """An HTTPS edge in front of the tunnels with `app=shop`; its address."""
    remote = service.client()
    group = remote.backends.tunnel_group.create(labels={"app": "shop"})
    edge = remote.edges.https.create(hostports=["shop.test:443"])
    remote.edges.https.routes.create(
        edge.id, match_type="path_prefix", match="/", backend={"backend_id": group.id}
    )
    return service.edge_url("shop.test")
