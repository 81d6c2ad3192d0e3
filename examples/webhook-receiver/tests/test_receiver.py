"""The receiver, reached as the shop reaches it: through a tunnel."""

from __future__ import annotations

from collections.abc import Callable

import ginnel
from conftest import Shop
from receiver import Receiver

PAID = {"order": "A-7", "cents": 1990}


def test_a_payment_is_booked(
    ginnel_tunnel: Callable[..., str], receiver: Receiver, shop: Shop
) -> None:
    url = ginnel_tunnel(receiver)

    assert shop(f"{url}/hooks", PAID) == (201, {"booked": True})

    assert receiver.paid == {"A-7": 1990}


def test_a_wrong_signature_books_nothing(
    ginnel_tunnel: Callable[..., str], receiver: Receiver, shop: Shop
) -> None:
    url = ginnel_tunnel(receiver)

    assert shop(f"{url}/hooks", PAID, secret=b"guessed")[0] == 401

    assert receiver.paid == {}


def test_what_is_no_payment_is_told_apart(
    ginnel_tunnel: Callable[..., str],
    ginnel_agent_client: ginnel.AgentClient,
    receiver: Receiver,
    shop: Shop,
) -> None:
    url = ginnel_tunnel(receiver)

    shop(f"{url}/hooks", {"order": "A-7"})

    seen = ginnel_agent_client.requests.wait_for(lambda hook: hook.request.method == "POST")
    assert seen.request.json() == {"order": "A-7"}
    assert seen.response is not None
    assert seen.response.status_code == 422


def test_a_hook_that_comes_twice_is_booked_once(
    ginnel_tunnel: Callable[..., str],
    ginnel_agent_client: ginnel.AgentClient,
    receiver: Receiver,
    shop: Shop,
) -> None:
    shop(f"{ginnel_tunnel(receiver)}/hooks", PAID)
    first = ginnel_agent_client.requests.wait_for()

    # The same bytes again, signature and all: what a shop does that got no answer.
    ginnel_agent_client.requests.replay(first.id)

    again = ginnel_agent_client.requests.wait_for(lambda hook: hook.id != first.id)
    assert again.response is not None
    assert again.response.json() == {"booked": False}
    assert receiver.paid == {"A-7": 1990}
