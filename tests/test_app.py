"""The app through its API: typed answers, sentences for mistakes, and nothing that is not meant to be given."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
import torch
from gradio_client import Client
from gradio_client.exceptions import AppError

from attnkit import load_checkpoint
from tests.browsing import bits, model_without
from tests.serving import COLOURS, PATIENCE, TORN, build_site, fill, serve

# What surrounds the app on a Space or on somebody's machine, and must not move it.
SURROUNDINGS = {"GRADIO_SSR_MODE": "True", "GRADIO_CACHE_EXAMPLES": "true", "GRADIO_ANALYTICS_ENABLED": "True"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = build_site(tmp_path_factory.mktemp("a site"))
    fill(folder / "checkpoints")
    return folder


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return tmp_path_factory.mktemp("log") / "app.log"


@pytest.fixture(scope="module")
def address(site, log):
    with serve(site, log, **SURROUNDINGS) as address:
        yield address


@pytest.fixture(scope="module")
def client(address):
    return Client(address, verbose=False)


def test_the_api_is_three_documented_endpoints_with_typed_answers(client):
    endpoints = client.view_api(return_format="dict", print_info=False)

    assert endpoints["unnamed_endpoints"] == {}
    assert sorted(endpoints["named_endpoints"]) == ["/ablate", "/attention", "/classify"]
    for endpoint in endpoints["named_endpoints"].values():
        parameters = {p["parameter_name"]: p for p in endpoint["parameters"]}
        assert {*parameters} >= {"sequence", "checkpoint"}
        assert parameters["checkpoint"]["parameter_default"] == "majority"
        assert parameters["sequence"]["type"]["type"] == "string"
        assert endpoint["description"]
        (answer,) = endpoint["returns"]
        assert {"checkpoint", "before"} & answer["type"]["properties"].keys()
    heads = endpoints["named_endpoints"]["/ablate"]["parameters"][1]["type"]
    assert heads["items"]["items"]["type"] == "integer"


def test_classify_is_what_the_model_says(client, site):
    answer = client.predict("0110100110010111", api_name="/classify")
    logits = model_without(site / "checkpoints", "majority", bits("0110100110010111"), [])
    probabilities = logits.softmax(0).tolist()

    assert answer == {
        "checkpoint": "majority",
        "sequence": "0110100110010111",
        "prediction": ("not majority", "majority")[int(logits.argmax())],
        "probabilities": pytest.approx({"not majority": probabilities[0], "majority": probabilities[1]}),
        "margin": pytest.approx(abs(float(logits[1] - logits[0])), abs=1e-5),
        "counts": {"0": 7, "1": 9},
        "rule": "A sequence is a majority if more than half of its tokens are ones; a tie, such as 8 of 16, is not.",
        "expected": "majority",
    }


def test_attention_is_the_models_layer_head_query_key(client, site):
    answer = client.predict("a<&a<", COLOURS, api_name="/attention")
    _, attentions = load_checkpoint(site / "checkpoints" / COLOURS)(torch.tensor([[0, 1, 2, 0, 1]]))

    assert answer["tokens"] == ["a", "<", "&", "a", "<"]
    assert np.allclose(answer["weights"], torch.stack(attentions)[:, 0].detach(), atol=1e-7)
    assert np.allclose(np.sum(answer["weights"], axis=-1), 1, atol=1e-6)


def test_ablate_is_the_model_without_these_heads(client, site):
    answer = client.predict("0110100110010111", [[1, 1], [0, 2]], api_name="/ablate")
    logits = model_without(site / "checkpoints", "majority", bits("0110100110010111"), [(0, 2), (1, 1)])

    assert answer["heads"] == [[0, 2], [1, 1]]
    assert answer["before"] == client.predict("0110100110010111", api_name="/classify")
    assert list(answer["after"]["probabilities"].values()) == pytest.approx(logits.softmax(0).tolist(), abs=1e-6)
    assert len(answer["each"]) == 8


@pytest.mark.parametrize("heads", [[[2, 0]], [[0]], "0.1", [["a", "b"]], {"layer": 0}])
def test_a_head_that_is_not_there_is_answered_with_a_sentence(client, heads):
    with pytest.raises(AppError, match=r"head: got .*, allowed is layer 0 to 1, head 0 to 3"):
        client.predict("01", heads, api_name="/ablate")


@pytest.mark.parametrize("endpoint", ["/classify", "/attention"])
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("",), "the sequence is empty; type 1 to 16 of the characters {0,1}"),
        (("0120",), "character '2' at position 3 is not in the vocabulary {0,1}"),
        (("1" * 17,), "17 tokens; this checkpoint takes at most 16"),
        (("<b>",), "character '<' at position 1"),
        ((["0", "1"],), "sequence: got list, allowed is text"),
        (
            ("01", "../../etc/passwd"),
            "checkpoint: got '../../etc/passwd', allowed is <b>torn, <i>colours, majority",
        ),
        (("01", ["majority"]), "checkpoint: got ['majority'], allowed is <b>torn, <i>colours, majority"),
        (("01", TORN), "config.json: is not JSON"),
    ],
)
def test_a_mistake_is_answered_with_its_sentence_and_nothing_of_the_server(
    client, site, log, endpoint, arguments, sentence
):
    with pytest.raises(AppError) as error:
        client.predict(*arguments, api_name=endpoint)

    assert sentence in str(error.value)
    assert str(site) not in str(error.value)
    assert "Traceback" not in str(error.value) + log.read_text()


def test_clients_at_once_each_get_their_own_answer(address):
    """And a light call is not held up by heavier ones."""

    def ask(number):
        mine = Client(address, verbose=False)
        sequences = [format(number * 1000 + i, "016b") for i in range(10)]
        answers = [mine.predict(sequence, api_name="/classify")["sequence"] for sequence in sequences]
        return answers == sequences

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, range(4)))


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "{site}/demo/app.py",
        "{site}/checkpoints/majority/model.safetensors",
        "demo/app.py",
        "checkpoints/majority/config.json",
        "../../../../etc/passwd",
    ],
)
def test_no_file_of_the_server_is_served(address, site, path):
    answer = httpx.get(f"{address}/gradio_api/file={path.format(site=site)}", timeout=PATIENCE)

    assert answer.status_code in (403, 404)


def test_nothing_can_be_uploaded(address):
    files = {"files": ("a.txt", b"a" * 1000)}
    answer = httpx.post(f"{address}/gradio_api/upload", files=files, timeout=PATIENCE)

    assert answer.status_code == 413


def test_the_app_writes_nothing_beside_itself(address, site):
    """A subclassed component would leave a .pyi there."""
    files = {path.name for path in (site / "demo").iterdir()}

    assert not {name for name in files if name.endswith(".pyi")}


NOT_TO_BE_HAD = "port {} is in use, or none; choose another: GRADIO_SERVER_PORT=7861 python demo/app.py"


def test_a_port_that_is_none_ends_the_start_with_one_line(site):
    """As a user starts it: gradio, too, reads this variable, and trips over what is no number."""
    run = subprocess.run(
        [sys.executable, site / "demo" / "app.py"],
        env=os.environ | {"GRADIO_SERVER_PORT": "web"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )

    assert run.returncode == 1
    assert run.stderr == NOT_TO_BE_HAD.format("web") + "\n"


STARTS = """
import os, runpy, sys
app, *ports = sys.argv[1:]
sys.argv = [app]
main = runpy.run_path(app)["main"]
for port in ports:
    os.environ["DEMO_PORT"] = port
    try:
        main()
    except SystemExit as end:
        print(end)
"""


def test_every_port_that_cannot_be_had_is_answered_with_this_line(address, site):
    """In one process, whose page is built once for them all."""
    ports = [address.rsplit(":", 1)[1], "70000", "-1", ""]
    command = [sys.executable, "-c", STARTS, site / "demo" / "app.py", *ports]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)

    assert run.stdout.splitlines() == [NOT_TO_BE_HAD.format(port) for port in ports]
    assert run.stderr == ""
