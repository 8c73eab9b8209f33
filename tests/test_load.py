"""The app with many clients at once; `python -m benchmarks.load` has fifty with twenty calls each."""

import asyncio

import httpx
import pytest
from gradio_client import Client

from demo.lanes import REST
from tests.load import load, pid_of
from tests.serving import PATIENCE, build_site, fill, serve


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = build_site(tmp_path_factory.mktemp("site"))
    fill(folder / "checkpoints")
    return folder


@pytest.fixture(scope="module")
def address(site, tmp_path_factory):
    with serve(site, tmp_path_factory.mktemp("log") / "app.log") as address:
        yield address


def test_many_clients_at_once_get_their_own_answers_and_leave_nothing_behind(address, site):
    load(address, pid_of(site), clients=2, calls=2)  # what the first calls load stays
    found = load(address, pid_of(site), clients=12, calls=8)

    assert found.calls == 96
    assert found.errors == []
    assert found.strays == []
    assert found.grown < 20  # MiB


def test_when_too_many_ask_they_are_told_and_no_harm_is_done(address):
    """More at once than may wait: those who come too late are told, the others answered, and then there is room."""

    async def ask(client):
        call, body = f"{address}/gradio_api/call/ablate", {"data": ["01" * 8, [], "zero", "majority"]}
        number = (await client.post(call, json=body)).json()["event_id"]
        return (await client.get(f"{call}/{number}")).text

    async def flood(count):
        # A connection that is kept for long may be closed by the server just as it is used again.
        limits = httpx.Limits(max_connections=count, max_keepalive_connections=0)
        async with httpx.AsyncClient(timeout=PATIENCE, limits=limits) as client:
            return await asyncio.gather(*(ask(client) for _ in range(count)))

    answers = asyncio.run(flood(300))
    refused = [answer for answer in answers if answer.startswith("event: error")]
    answered = [answer for answer in answers if answer.startswith("event: complete")]

    assert len(refused) + len(answered) == 300
    assert len(answered) >= REST.most
    assert refused
    assert all("please try again in a moment" in answer for answer in refused)
    assert Client(address, verbose=False).predict("0110", api_name="/classify")["sequence"] == "0110"
