"""Quantization of float networks: places of quantizers, the search for widths, and the command."""

import itertools
import json
from typing import Any

import numpy as np
import onnx
import pytest
from support.onnx_files import float_network, model, node

import bitsynth
from bitsynth.errors import SpecError
from bitsynth.quantization import quantize
from bitsynth.quantization.float_model import FloatModel, simplify

pytest.importorskip("onnxruntime")
pytest.importorskip("scipy")
pytestmark = pytest.mark.slow


def residual_network(rng, *, dims=("N", 3, 10, 10)):
    """A float network with batch norm, a residual addition, a pool and a dense layer."""
    values = {
        "w1": rng.normal(size=(8, 3, 3, 3)) / 5,
        "gain": rng.uniform(0.5, 1.5, 8),
        "shift": rng.normal(size=8) / 5,
        "mean": rng.normal(size=8) / 5,
        "var": rng.uniform(0.5, 1.5, 8),
        "w2": rng.normal(size=(8, 8, 3, 3)) / 8,
        "b2": rng.normal(size=8) / 5,
        "w3": rng.normal(size=(8, 5)) / 3,
        "b3": rng.normal(size=5),
    }
    nodes = [
        node("Conv", "x w1", "c1", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "c1 gain shift mean var", "n1"),
        node("Relu", "n1", "a1"),
        node("Conv", "a1 w2 b2", "c2", pads=[1, 1, 1, 1]),
        node("Add", "c2 a1", "s"),
        node("Relu", "s", "a2"),
        node("GlobalAveragePool", "a2", "p"),
        node("Flatten", "p", "f"),
        node("Gemm", "f w3 b3", "y"),
    ]
    return float_network(nodes, {"x": dims}, values)


@pytest.fixture
def rng():
    return np.random.default_rng(11)


@pytest.fixture(scope="module")
def data():
    return np.random.default_rng(7).normal(size=(24, 3, 10, 10)).astype(np.float32)


@pytest.fixture(scope="module")
def quantized(data):
    network = residual_network(np.random.default_rng(3))
    return quantize(network, data, isa="avx2", batch=1, loss=0.05, act_bits=(4, 8), w_bits=(3, 8))


def test_places_of_quantizers():
    network = FloatModel(simplify(residual_network(np.random.default_rng(3)), {}, 1, {}))
    assert [p.op for p in network.products] == ["Conv", "Conv", "Gemm"]
    assert not any(n.op_type == "BatchNormalization" for n in network.model.graph.node)
    relus = [n.output[0] for n in network.model.graph.node if n.op_type == "Relu"]
    assert network.searched_edges[0] == relus[0]
    assert network.other_edges == ("x", relus[1])


def test_every_product_is_a_kernel_and_the_loss_holds(quantized, data):
    report = quantized.report
    assert report.in_kernels == len(report.layers) == 3
    assert report.loss <= report.bound == 0.05
    assert report.loss_is == "error"
    net = bitsynth.compile(quantized.model, isa="avx2")
    runtime = pytest.importorskip("onnxruntime")
    floats = runtime.InferenceSession(
        residual_network(np.random.default_rng(3)).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    pairs = [(net(x[None]), floats.run(None, {"x": x[None]})[0]) for x in data]
    error = np.sqrt(np.mean([np.square(a - b) for a, b in pairs])) / np.std([b for _, b in pairs])
    assert error == pytest.approx(report.loss, rel=1e-3)


@pytest.mark.parametrize("act_bits", [4, 8])
@pytest.mark.parametrize("w_bits", [3, 8])
def test_residual_additions_are_in_layers(act_bits, w_bits, data):
    """Scales and biases leave room for exact float32 formulas."""
    result = quantize(
        residual_network(np.random.default_rng(3)),
        data,
        labels=np.zeros(24, np.int64),
        isa="avx2",
        batch=1,
        loss=0.9,
        act_bits=(act_bits,),
        w_bits=(w_bits,),
    )
    net = bitsynth.compile(result.model, isa="avx2")
    assert [step.kind for step in net.report().steps if "s" in step.nodes] == ["layer"]


def test_it_is_cheaper_than_the_most_bits(quantized):
    first, *others = quantized.report.trials
    assert min(trial.cycles for trial in others) < first.cycles
    chosen = sum(layer.weight_bytes for layer in quantized.report.layers)
    assert chosen < quantized.report.float_bytes


def test_the_program_finds_the_cheapest_widths(rng):
    """As trying all widths does."""
    from bitsynth.network.def_use import NetworkTarget
    from bitsynth.progress import silent
    from bitsynth.quantization.calibration import Calibration
    from bitsynth.quantization.goal import Cost, SearchGoal
    from bitsynth.quantization.search import Search

    network = FloatModel(simplify(residual_network(np.random.default_rng(3)), {}, 1, {}))
    search = Search(Calibration(network, []), NetworkTarget("avx2"), (2, 4, 8), (2, 8), None, silent)
    variables = search.choices
    for trial in range(10):
        search.state.estimates = {(n, b): float(rng.uniform(0, 1)) for n, widths in variables.items() for b in widths}
        search.state.costs = {
            (p.name, a, w): Cost(float(rng.integers(1, 100)), 0.0)
            for p in network.products
            for a in (2, 4, 8)
            for w in variables[p.name]
        }
        budget = 0.3 * trial + 1.0
        costs = {}
        for chosen in itertools.product(*variables.values()):
            bits = dict(zip(variables, chosen, strict=True))
            if sum(search.state.estimates[item] for item in bits.items()) <= budget:
                pairs = [(p.name, bits.get(p.edge, 8), bits[p.name]) for p in network.products]
                costs[chosen] = sum(search.state.costs[pair].cycles for pair in pairs)
        if not costs:
            continue
        widths = search.solve(SearchGoal("cycles", budget, None, None))
        got: dict[str, Any] = {**widths.edges, **{p.name: widths.codes(p.name) for p in network.products}}
        cycles = sum(search.state.costs[p.name, got[p.edge], got[p.name]].cycles for p in network.products)
        assert cycles == pytest.approx(min(costs.values()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": 0}, "the loss allowed is 0"),
        ({"act_bits": (1, 8)}, "bits of activations are 2 to 8, not 1, 8"),
        ({"w_bits": ()}, "bits of weights are 1 to 8, not none"),
        ({"minimize": "time"}, "minimize is cycles, bytes or loss, not 'time'"),
        ({"labels": np.zeros(3, np.int64)}, "labels are int64 (3,); wanted 24 whole numbers"),
        ({"labels": np.arange(24)}, "labels go from 0 to 23; the first output has classes 0 to 4"),
        ({"fixed": {"typo": 1}}, "--fix typo: no input of the file; inputs: x"),
        ({"batch": None}, "input x: axis 0 is N; fix the batch with --batch N"),
        ({"shapes": {"x": (1, 3, 11, 10)}}, "axis 2 is 10 in the file; --shape gives 11"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message, data):
    network = residual_network(np.random.default_rng(3))
    with pytest.raises(SpecError) as refused:
        quantize(network, data, isa="avx2", **{"batch": 1, **options})
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x[:, :2], "data of x have shape (24, 2, 10, 10); wanted ('samples', 3, 10, 10)"),
        (lambda x: x[:2], "data have 2 samples; give 4 at least"),
        (lambda x: x[:0], "data of x have shape (0, 3, 10, 10)"),
        (lambda x: x * np.nan, "data of x hold NaN or infinity"),
        (lambda x: x * 1e20, "whose squares overflow float32; scale the data"),
        (lambda x: {"z": x}, "no data of the input x; arrays: z"),
        (lambda x: np.full(x.shape, "a"), "data of x are of type <U1; wanted numbers"),
    ],
)
def test_data_that_do_not_fit_are_refused(change, message, data):
    with pytest.raises(SpecError) as refused:
        quantize(residual_network(np.random.default_rng(3)), change(data), isa="avx2", batch=1)
    assert message in str(refused.value)


@pytest.mark.parametrize("op", ["3-D MatMul", "Gemm with transA", "Gemm with a bias of rows", "Gemm with beta 0"])
def test_products_of_other_forms(op, rng):
    """They stay in floats, or are quantized; the file has the network's results."""
    w = rng.normal(size=(6, 5)).astype(np.float32)
    constants = {
        "w": w,
        "c": rng.normal(size=(4, 1)).astype(np.float32),
        "v": rng.normal(size=(5, 3)).astype(np.float32),
    }
    forms = {
        "3-D MatMul": (node("MatMul", "x w3", "a"), (2, 4, 6)),
        "Gemm with transA": (node("Gemm", "x w", "a", transA=1), (6, 4)),
        "Gemm with a bias of rows": (node("Gemm", "x w c", "a"), (4, 6)),
        "Gemm with beta 0": (node("Gemm", "x w c", "a", beta=0.0), (4, 6)),
    }
    first, shape = forms[op]
    constants["w3"] = rng.normal(size=(2, 6, 5)).astype(np.float32)
    nodes = [first, node("Relu", "a", "r"), node("MatMul", "r v", "y")]
    network = float_network(nodes, {"x": shape}, constants)
    data = rng.normal(size=(shape[0] * 6, *shape[1:])).astype(np.float32)
    result = quantize(network, data, isa="avx2", loss=0.2, act_bits=(8,), w_bits=(8,))
    assert result.report.loss < 0.05


def test_every_output_counts(rng):
    """The largest error of an output is the loss."""
    constants = {name: rng.normal(size=(8, 4)).astype(np.float32) for name in ("w", "v")}
    nodes = [node("MatMul", "x w", "y", name="n0"), node("MatMul", "x v", "z", name="n1")]
    onnx_model = model(nodes, {"x": (1, 8)}, constants, outputs="y z", opset=17)
    data = rng.normal(size=(40, 8)).astype(np.float32)
    result = quantize(onnx_model, data, isa="avx2", loss=0.3, w_bits=(2, 3, 8))
    net = bitsynth.compile(result.model, isa="avx2")
    errors = []
    for k, name in enumerate(("w", "v")):
        wanted = data @ constants[name]
        got = np.concatenate([net(row[None])[k] for row in data])
        errors.append(np.sqrt(np.square(got - wanted).mean() / wanted.var()))
    assert result.report.loss == pytest.approx(max(errors), rel=1e-3)
    assert max(errors) <= 0.3


def test_two_outputs_of_one_edge(rng):
    nodes = [node("MatMul", "x w", "a"), node("Identity", "a", "y"), node("Identity", "a", "z")]
    onnx_model = model(nodes, {"x": (1, 8)}, {"w": rng.normal(size=(8, 8)).astype(np.float32)}, outputs="y z", opset=17)
    result = quantize(onnx_model, rng.normal(size=(16, 8)).astype(np.float32), isa="avx2", loss=0.5)
    assert [o.name for o in result.model.graph.output] == ["y", "z"]
    first, second = bitsynth.compile(result.model, isa="avx2")(np.ones((1, 8), np.float32))
    assert np.array_equal(first, second)


def test_an_output_without_an_input_is_refused(rng):
    constants = {"w": rng.normal(size=(8, 8)).astype(np.float32), "k": np.ones(3, np.float32)}
    onnx_model = model(
        [node("MatMul", "x w", "y"), node("Neg", "k", "z")], {"x": (1, 8)}, constants, outputs="y z", opset=17
    )
    with pytest.raises(SpecError, match="output z depends on no input"):
        quantize(onnx_model, np.ones((4, 8), np.float32), isa="avx2")


def test_biases_are_corrected_in_order(rng):
    """Of a chain of products that all lose a little, the corrected one is no worse than the one that is not."""
    nodes, constants, edge = [], {}, "x"
    for k in range(10):
        constants[f"w{k}"] = (rng.normal(size=(12, 12)) / 3).astype(np.float32)
        nodes += [node("MatMul", f"{edge} w{k}", f"a{k}", name=f"m{k}"), node("Relu", f"a{k}", f"r{k}", name=f"r{k}")]
        edge = f"r{k}"
    constants["last"] = rng.normal(size=(12, 3)).astype(np.float32)
    nodes.append(node("MatMul", f"{edge} last", "y", name="end"))
    onnx_model = model(nodes, {"x": (1, 12)}, constants, opset=17)
    data = rng.normal(size=(60, 12)).astype(np.float32)
    assert quantize(onnx_model, data, isa="avx2", loss=0.5, act_bits=(8,), w_bits=(8,)).report.loss < 0.1


def test_a_network_without_products_is_refused():
    with pytest.raises(SpecError, match="nothing to quantize"):
        quantize(model([node("Relu", "x")], {"x": (1, 4)}, opset=17), np.zeros((1, 4), np.float32), isa="avx2")


def test_the_command_writes_a_file_that_compiles(ended, fails, tmp_path, data):
    source, samples, labels, out = (tmp_path / name for name in ("net.onnx", "x.npy", "labels.npy", "q.onnx"))
    onnx.save(residual_network(np.random.default_rng(3)), source)
    np.save(samples, data[:8])
    np.save(labels, np.zeros(8, np.int64))
    given = ["quantize", str(source), "--data", str(samples), "--batch", "1", "--isa", "avx2", "-o", str(out)]
    given += ["--act-bits", "4,8", "--w-bits", "4,8"]
    shown, _ = ended(0, *given, "--loss", "90%")
    assert "3 of 3 products by kernels" in shown
    found = json.loads(ended(0, *given, "--loss", "0.9", "--labels", str(labels), "--json")[0])
    assert found["loss_is"] == "accuracy"
    ended(0, "compile", str(out), "--isa", "avx2", "-o", str(tmp_path / "c"))
    assert "--loss: want a share" in fails(2, *given, "--loss", "2")
    assert "lose" in fails(2, *given, "--loss", "0.000001%")
    assert not list(tmp_path.glob("*.tmp"))
