"""The network that ships in examples/: its files agree with each other."""

import hashlib
import json

import numpy as np
import pytest
from support.markdown_blocks import ROOT

import bitsynth
from bitsynth.graph import read, run
from bitsynth.graph.types import Integers

FOLDER, NAME = ROOT / "examples" / "fashion", "fashion_a2w2"


@pytest.fixture(scope="module")
def record():
    return json.loads((FOLDER / f"{NAME}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def golden():
    """Pictures as the network takes them, labels, and the trainer's logits."""
    arrays = np.load(FOLDER / f"{NAME}.npz")
    return arrays["picture"], arrays["labels"], arrays["logits"]


def values(kind, x):
    """The graph of a file, and every edge of it for each picture."""
    graph = read(FOLDER / f"{NAME}_{kind}.onnx")
    return graph, [run(graph, {"picture": one[None]}) for one in x]


def test_the_record_is_of_these_files(record):
    files = [p for p in FOLDER.glob(f"{NAME}*") if p.suffix != ".json"]
    assert {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files} == record["sha256"]
    assert sum(p.stat().st_size for p in files) < 1_000_000


def test_the_record_says_what_was_trained(record):
    accuracy = record["accuracy"]
    assert accuracy["compiled"] == accuracy["trainer"] == record["after_epochs"][-1]["test"] > 0.9
    assert len(record["after_epochs"]) == record["epochs"]
    graph = read(FOLDER / f"{NAME}_qonnx.onnx")
    codes = [graph.edges[n.outputs[0]].type for n in graph.nodes if n.op == "quantize"]
    assert [c.bits for c in codes if isinstance(c, Integers)] == [8, *5 * [record["act_bits"]]]


def test_the_trainer_s_logits_tell_most_pictures(golden):
    _, labels, logits = golden
    assert (logits.argmax(1) == labels).mean() > 0.8


def test_the_reference_gives_the_trainer_s_logits(golden):
    x, _, logits = golden
    _, (found,) = values("qonnx", x[:1])
    np.testing.assert_allclose(found.outputs()[0], logits[:1], atol=3e-6)


@pytest.mark.slow
def test_qonnx_and_qcdq_give_the_same_codes(golden):
    x, _, logits = golden
    (one, ones), (other, others) = values("qonnx", x[1:4]), values("qcdq", x[1:4])
    assert [n.op for n in one.nodes] == [n.op for n in other.nodes]
    for a, b in zip(one.nodes, other.nodes, strict=True):
        if isinstance(one.edges[a.outputs[0]].type, Integers):
            assert all((p[a.outputs[0]] == q[b.outputs[0]]).all() for p, q in zip(ones, others, strict=True)), a
    for k, both in enumerate(zip(ones, others, strict=True), 1):
        for found in both:
            np.testing.assert_allclose(found.outputs()[0][0], logits[k], atol=3e-6)


@pytest.mark.slow
def test_compiled_files_give_the_trainer_s_logits(golden):
    x, _, logits = golden
    one, other = (bitsynth.compile(FOLDER / f"{NAME}_{kind}.onnx") for kind in ("qonnx", "qcdq"))
    for picture, wanted in zip(x, logits, strict=True):
        found = one(picture[None])
        np.testing.assert_allclose(found[0], wanted, atol=3e-6)
        assert (found == other(picture[None])).all()
