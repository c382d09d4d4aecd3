"""Trained networks: what their trainers and other executors say they give."""

import gzip
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.network_batches import compiled_together, numbers, same

import bitsynth
from bitsynth.graph import read, run
from bitsynth.graph.inspect import inspect_graph
from bitsynth.graph.types import Integers

PAIRS = ("a2w2", "a8w8")
COMPILED = (
    "dronetv3_w8a8_integerized/model.onnx",
    "espcn_subpixel_w4a4/model_qdq_int4.onnx",
    "finn_tfc_w1a1_multithreshold/model.onnx",
    "qkeras_qconv2d_w6a6/model.onnx",
    "mlperf_kws_w3a3/model_qcdq.onnx",
)
ROOT = Path(__file__).resolve().parents[2]
FASHION = ["a2w1_qonnx", "a2w2_qonnx", "a2w2_qcdq", "a3w3_qcdq", "a4w4_qonnx", "a4w4_qcdq", "a32w32"]


def idx(path):
    """The array of a file in MNIST's format."""
    data = gzip.decompress(path.read_bytes())
    shape = [int.from_bytes(data[4 + 4 * k : 8 + 4 * k], "big") for k in range(data[3])]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)


def results(graph, x):
    return np.concatenate([run(graph, {graph.inputs[0]: one}).outputs()[0] for one in x])


@pytest.mark.slow
def test_every_file_is_read(models, network_models):
    files = [*models.glob("*.onnx"), *network_models.rglob("*.onnx")]
    assert len(files) > 20
    for path in files:
        graph = read(path)
        graph.check()
        left = [n.node for n in inspect_graph(graph).nodes if n.stays_float]
        assert bool(left) == (path.parent.name in FLOATS or path.stem.endswith(("a32w32", "espcn_w4a4_subpixel"))), path


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_files_are_compiled(models, network_models):
    """One of each kind: every edge is the reference's, and QONNX and QCDQ of one network give the same."""
    others = [f"fashion/fmnist_{name}_{kind}.onnx" for name in PAIRS for kind in ("qonnx", "qcdq")]
    files = [models / "TFC_1W2A.onnx", *(network_models / name for name in (*COMPILED, *others))]
    nets = {path: bitsynth.compile(path, isa="avx2") for path in files}
    compiled_together("avx2", nets.values())
    fields = {}
    for path, net in nets.items():
        (name,) = net.graph.inputs
        x = numbers(np.random.default_rng(15), net.graph.edges[name])
        values, fields[path.stem] = run(net.graph, {name: x}), net(x)
        found = [*net.trace(x).items(), (net.graph.outputs[0], fields[path.stem])]
        assert not [edge for edge, got in found if not same(values, edge, got)], path
    for name in PAIRS:
        assert np.array_equal(fields[f"fmnist_{name}_qonnx"], fields[f"fmnist_{name}_qcdq"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cifar10_cnvW1A1", "cifar10_cnvW1A2"])
def test_cnv_is_compiled(models, monkeypatch, name):
    """To the bit at every edge, and to the logits of the file."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from cifar10_cnv import NETWORKS, pixels
    from cifar10_onnx import image_of, network

    with np.load(models / f"{name}.npz") as file:
        arrays = dict(file)
    net = bitsynth.compile(network(arrays, NETWORKS[name][0]), isa="avx2")
    assert {step.kind for step in net.program.steps} == {"plain", "layer", "glue"}
    images = [image_of(x) for x in pixels(arrays["images"])]
    assert np.array_equal(np.concatenate([net(x) for x in images]), arrays["ref_logits"])
    values, found = run(net.graph, {"image": images[0]}), net.trace(images[0])
    assert all(np.array_equal(found[e], values[e]) for e in found.keys() - {"image", *net.graph.outputs})


DEEPLOY = ("AnomalyDetection", "KeywordSpotting", "miniMobileNet")
FLOATS = ("dronetv3_w8a8_integerized", "espcn_subpixel_w4a4", "qkeras_qconv2d_w6a6", *DEEPLOY)
"""Folders of networks whose inputs no quantizer reads, or whose weights are none."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "accuracy"), [("TFC_1W2A", 94.74), ("TFC_1W1A", 92.96)])
def test_tfc_on_all_images(models, name, accuracy):
    onnx_model = onnx.load(models / f"{name}.onnx")
    onnx_model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 500
    graph = read(onnx_model)
    images = idx(models / "t10k-images-idx3-ubyte.gz").reshape(20, 500, 1, 28, 28).astype(np.float32) / np.float32(255)
    found = results(graph, images).argmax(1)
    assert (found == idx(models / "t10k-labels-idx1-ubyte.gz")).mean() * 100 == pytest.approx(accuracy)


@pytest.mark.slow
@pytest.mark.parametrize("name", FASHION)
def test_logits_are_the_trainer_s(network_models, name):
    folder = network_models / "fashion"
    golden = np.load(folder / f"fmnist_{name.partition('_')[0]}_golden.npz")
    x = golden["x"][:4].astype(np.float32)[:, None] / np.float32(255)
    np.testing.assert_allclose(results(read(folder / f"fmnist_{name}.onnx"), x), golden["y"][:4], atol=3e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a2w2", "a3w3", "a4w4", "a8w8"])
def test_qonnx_and_qcdq_are_one_network(network_models, name):
    folder = network_models / "fashion"
    graphs = [read(folder / f"fmnist_{name}_{kind}.onnx") for kind in ("qonnx", "qcdq")]
    assert [n.op for n in graphs[0].nodes] == [n.op for n in graphs[1].nodes]
    x = np.load(folder / "test_1000.npz")["x"][:2].astype(np.float32)[:, None] / np.float32(255)
    for one in x:
        values = [run(graph, {graph.inputs[0]: one}) for graph in graphs]
        for a, b in zip(graphs[0].nodes, graphs[1].nodes, strict=True):
            if isinstance(graphs[0].edges[a.outputs[0]].type, Integers):
                assert (values[0][a.outputs[0]] == values[1][b.outputs[0]]).all(), a


EXPECTED = {
    "mlperf_kws_w3a3/model.onnx": 1e-5,
    "mlperf_kws_w3a3/model_qcdq.onnx": 1e-5,
    "finn_tfc_w1a1_multithreshold/model.onnx": 0,
    "qkeras_qconv2d_w6a6/model.onnx": 1e-6,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_results_are_those_of_qonnx(network_models, name):
    folder = (network_models / name).parent
    x, y = (np.load(folder / f"{part}.npy")[:4] for part in ("input", "expected"))
    np.testing.assert_allclose(results(read(network_models / name), x), y.reshape(-1, y.shape[-1]), atol=EXPECTED[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model_qcdq", "model_qdq_int4"])
def test_super_resolution_differs_near_ties_alone(network_models, name):
    """The executor's float32 sums lie on the other side of a rounding in 11 of 196,608 codes."""
    folder = network_models / "espcn_subpixel_w4a4"
    x, y = (np.load(folder / f"{part}.npy") for part in ("input", "expected"))
    got = results(read(folder / f"{name}.onnx"), x)
    assert (got != y.reshape(got.shape)).sum() == 11
    assert abs(got - y.reshape(got.shape)).max() < 0.004


def test_a_quantizer_that_cannot_be_meant_is_named(network_models):
    facts = inspect_graph(read(network_models / "fashion" / "fmnist_a1w1_qonnx.onnx"))
    assert sum(n.note.startswith("gives 1 for every input: after Relu") for n in facts.nodes) == 13
