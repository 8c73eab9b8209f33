"""The app with many clients at once; `python -m benchmarks.load` has fifty with twenty calls each."""

import asyncio
from collections import Counter

import httpx
import pytest
from gradio_client import Client

from tests.load import load, pid_of
from tests.serving import build_site, fill, serve

MOST_WAITING = 64  # of the queue, as app.py sets it


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


def test_a_full_queue_says_so_and_takes_no_harm(address):
    """More at once than may wait: those who come too late are told, the others answered, and then there is room."""

    async def flood(count):
        async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=count)) as client:
            call, body = f"{address}/gradio_api/call/ablate", {"data": ["01" * 8, [], "zero", "majority"]}
            return await asyncio.gather(*(client.post(call, json=body) for _ in range(count)))

    answers = asyncio.run(flood(400))
    counted = Counter(answer.status_code for answer in answers)

    assert set(counted) == {200, 503}
    assert counted[200] >= MOST_WAITING
    told = {answer.json()["detail"] for answer in answers if answer.status_code == 503}
    assert all(sentence.startswith(f"Queue is full. Max size is {MOST_WAITING}") for sentence in told)
    assert Client(address, verbose=False).predict("0110", api_name="/classify")["sequence"] == "0110"
