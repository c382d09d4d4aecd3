"""No error of a quantized network is above its bound, whatever the network and the inputs."""

import json
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.onnx_files import MICROSOFT, float_network, model, node

from bitsynth.graph.quantizer_claims import KEY, claims_of
from bitsynth.graph.read import read
from bitsynth.network.check.data import Feed
from bitsynth.progress import silent
from bitsynth.quantization import quantize
from bitsynth.quantization.calibration import Calibration
from bitsynth.quantization.error_bound import Enclosure, Spread, _bilinear, bound_error, convolve, quantize_spread
from bitsynth.quantization.float_model import FloatModel, FloatRunner, simplify
from bitsynth.quantization.grids import QuantizerGrid, WeightCodes
from bitsynth.quantization.quantized_model import Widths, write_model
from bitsynth.quantization.reconstruction import reconstruct

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow

MIDDLES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "relu": [("Relu", {})],
    "leaky": [("LeakyRelu", {"alpha": 0.1})],
    "sigmoid": [("Sigmoid", {})],
    "tanh": [("Tanh", {})],
    "hard": [("HardSigmoid", {"alpha": 0.2})],
    "max": [("Relu", {}), ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]})],
    "average": [("AveragePool", {"kernel_shape": [2, 2], "strides": [1, 1], "pads": [1, 0, 0, 1]})],
    "transposed": [("Relu", {}), ("Transpose", {"perm": [0, 1, 3, 2]})],
    "nothing": [],
}
ENDS: dict[str, list[tuple[str, dict[str, Any]]]] = {"scores": [], "softmax": [("Softmax", {"axis": 1})]}


def network(rng, middle, end, *, groups, residual):
    """Two convolutions, or a residual block, and a dense layer."""
    values = {
        "w1": rng.normal(size=(4, 4 // groups, 3, 3)) * rng.uniform(0.1, 2),
        "b1": rng.normal(size=4),
        "w2": rng.normal(size=(4, 4, 1, 1)),
        "w3": rng.normal(size=(4, 3)),
        "b3": rng.normal(size=3),
    }
    nodes = [node("Conv", "x w1 b1", "a0", pads=[1, 1, 1, 1], strides=[int(rng.choice([1, 2]))] * 2, group=groups)]
    for k, (op, attributes) in enumerate(MIDDLES[middle]):
        nodes.append(node(op, f"a{k}", f"a{k + 1}", **attributes))
    edge = f"a{len(MIDDLES[middle])}"
    nodes.append(node("Conv", f"{edge} w2", "c"))
    nodes.append(node("Add", f"c {edge}", "s") if residual else node("Identity", "c", "s"))
    nodes += [node("Relu", "s", "r"), node("GlobalAveragePool", "r", "p"), node("Flatten", "p", "f")]
    nodes.append(node("Gemm", "f w3 b3", "y0"))
    for k, (op, attributes) in enumerate(ENDS[end]):
        nodes.append(node(op, f"y{k}", f"y{k + 1}", **attributes))
    return float_network(nodes, {"x": (1, 4, 6, 6)}, values, outputs=f"y{len(ENDS[end])}")


def inputs_in(rng, low, high, count) -> list[Feed]:
    """Inputs in a box: some all over it, others at its corners."""
    inner = rng.uniform(low, high, (count, 1, 4, 6, 6))
    corners = np.where(rng.random((count, 1, 4, 6, 6)) < 0.5, low, high)
    return [{"x": x.astype(np.float32)} for x in (*inner, *corners)]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1 << 30),
    st.sampled_from([*MIDDLES]),
    st.sampled_from([*ENDS]),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
    st.tuples(st.sampled_from([2, 3, 8]), st.sampled_from([1, 2, 4, 8])),
)
def test_no_error_is_above_the_bound(seed, middle, end, groups, residual, bits):
    rng = np.random.default_rng(seed)
    floats = FloatModel(simplify(network(rng, middle, end, groups=groups, residual=residual), {}, 1, {}))
    low, high = -rng.uniform(0, 2), rng.uniform(0.1, 3)
    calibration = Calibration(floats, inputs_in(rng, low, high, 4))
    calibration.collect(silent)
    edges = {**dict.fromkeys(floats.searched_edges, bits[0]), **dict.fromkeys(floats.other_edges, 8)}
    widths = Widths(edges, {p.name: bits[1] for p in floats.products})
    corrections = reconstruct(calibration, widths)
    quantized = write_model(calibration, widths, corrections)
    box = {"x": (low, high)}
    seen = {edge: (float(some.min()), float(some.max())) for edge, some in calibration.numbers.items()}
    bound = bound_error(floats, quantized, box, {})
    in_ranges = bound_error(floats, quantized, box, seen)
    assert not bound.no_bound
    (name,) = floats.outputs
    assert in_ranges.outputs[name] <= bound.outputs[name] * (1 + 1e-9)
    run_float = FloatRunner(floats.model, [name, *seen])
    run_quantized = FloatRunner(write_model(calibration, widths, corrections, runnable=True), [name])
    for sample in (*calibration.samples, *inputs_in(rng, low, high, 8)):
        values = {**sample, **run_float(sample)}
        error = np.abs(values[name].astype(np.float64) - run_quantized(sample)[name]).max()
        assert error <= bound.outputs[name]
        if all(values[edge].min() >= ends[0] and values[edge].max() <= ends[1] for edge, ends in seen.items()):
            assert error <= in_ranges.outputs[name]


@given(st.integers(2, 8), st.integers(0, 1 << 30))
def test_a_quantizer_moves_a_number_by_half_a_step_or_to_its_ends(bits, seed):
    rng = np.random.default_rng(seed)
    grid = QuantizerGrid(bits, np.asarray(2.0 ** rng.integers(-6, 3), np.float32), int(rng.integers(0, 1 << bits)))
    low, high = np.sort(rng.normal(size=(2, 5)) * 30, 0)
    known = Enclosure(low, high)
    spread = quantize_spread(Spread(known, known, Enclosure(np.zeros(5), np.zeros(5))), grid)
    for x in rng.uniform(low, high, (50, 5)):
        code = grid.quantize(x.astype(np.float32)).astype(np.float64)
        assert (spread.quantized.low <= code).all()
        assert (code <= spread.quantized.high).all()
        assert (spread.error.low <= code - x).all()
        assert (code - x <= spread.error.high).all()


def test_the_example_of_the_module():
    known = Enclosure(np.array([0.0]), np.array([3.0]))
    spread = quantize_spread(
        Spread(known, known, Enclosure(np.zeros(1), np.zeros(1))), QuantizerGrid(5, np.asarray(0.0625, np.float32))
    )
    assert spread.quantized.high[0] == pytest.approx(31 / 16)
    assert spread.error.low[0] == pytest.approx(31 / 16 - 3)
    assert spread.error.high[0] == pytest.approx(1 / 32, rel=1e-2)


def test_a_bound_is_tight_where_nothing_depends_on_anything():
    """One dense layer: the worst input of the box nearly has the error."""
    rng = np.random.default_rng(4)
    w = rng.normal(size=(6, 2)).astype(np.float32)
    floats = FloatModel(simplify(model([node("MatMul", "x w", "y", name="n")], {"x": (1, 6)}, {"w": w}), {}, 1, {}))
    calibration = Calibration(floats, [{"x": rng.uniform(-1, 1, (1, 6)).astype(np.float32)} for _ in range(50)])
    calibration.collect(silent)
    product = floats.products[0]
    quantized = write_model(calibration, Widths({"x": 8}, {product.name: 2}))
    bound = bound_error(floats, quantized, {"x": (-1, 1)}, {}).outputs["y"]
    _, rounded = calibration.weights(product, WeightCodes(2))
    grid = calibration.grid("x", 8)
    reach = max(1 - min(abs(grid.limits[k] - grid.zero) * float(grid.scale), 1) for k in range(2))
    off = np.abs(rounded - w).sum(0) + np.abs(rounded).sum(0) * max(reach, float(grid.scale) / 2)
    assert np.abs(rounded - w).sum(0).max() * 0.9 <= bound <= off.max() * 1.01


def test_convolutions_are_those_of_onnxruntime():
    rng = np.random.default_rng(8)
    x, w = rng.normal(size=(2, 6, 9, 7)), rng.normal(size=(4, 3, 3, 2))
    attributes: dict[str, Any] = {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2], "group": 2}
    nodes = [node("Conv", "x w", "y", **attributes, name="n")]
    run = FloatRunner(model(nodes, {"x": x.shape}, {"w": w.astype(np.float32)}), ["y"])
    wanted = run({"x": x.astype(np.float32)})["y"]
    assert np.allclose(convolve(x, w, [(1, 2), (0, 1)], [2, 1], [1, 2], 2), wanted, atol=1e-4)


def test_operators_without_a_rule_give_no_bound():
    nodes = [node("MatMul", "x w", "a", name="n0"), node("Erf", "a", "y", name="n1")]
    floats = FloatModel(simplify(model(nodes, {"x": (1, 4)}, {"w": np.eye(4, dtype=np.float32)}), {}, 1, {}))
    calibration = Calibration(floats, [{"x": np.ones((1, 4), np.float32)}])
    calibration.collect(silent)
    quantized = write_model(calibration, Widths({"x": 8}, {floats.products[0].name: 8}))
    assert "Erf" in bound_error(floats, quantized, {"x": (0, 1)}, {}).no_bound


END = np.iinfo(np.int64).max
AFTER_A_PRODUCT: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "clip to an empty interval": ([node("Clip", "a l h")], {"l": np.float32(1), "h": np.float32(-1)}),
    "clip from above": ([node("Clip", "a - h")], {"h": np.float32(0.5)}),
    "hard sigmoid of a large beta": ([node("HardSigmoid", "a", alpha=1000.0, beta=999.5)], {}),
    "slice to the end": ([node("Slice", "a b e k")], {"b": np.array([1]), "e": np.array([END]), "k": np.array([1])}),
    "slice without axes": (
        [node("Slice", "a b e - k")],
        {"b": np.array([0, 1]), "e": np.array([1, 4]), "k": np.array([1, 2])},
    ),
    "mean over no axes": ([node("ReduceMean", "a k", noop_with_empty_axes=1)], {"k": np.zeros(0, np.int64)}),
    "product by a vector": ([node("MatMul", "a v")], {"v": np.array([1, -2, 3, 0.3], np.float32)}),
    "softmax over the first axis": ([node("Softmax", "a", axis=0)], {}),
    "leaky of slope 1": ([node("LeakyRelu", "a", alpha=1.0)], {}),
    "negation": ([node("Mul", "a m")], {"m": np.float32(-3)}),
}


def after_a_product(nodes, constants, *, first=None, bits=4):
    """The float network of a product and other nodes, a quantized one, samples and the bound for these."""
    rng = np.random.default_rng(2)
    first = first or node("MatMul", "x w", "a")
    values = {"w": rng.normal(size=(4, 4)).astype(np.float32), **constants}
    floats = FloatModel(simplify(model([first, *nodes], {"x": (1, 4)}, values, opset=18), {}, 1, {}))
    samples: list[Feed] = [{"x": rng.uniform(-1, 1, (1, 4)).astype(np.float32)} for _ in range(40)]
    calibration = Calibration(floats, samples)
    calibration.collect(silent)
    widths = Widths(dict.fromkeys(floats.quantized_edges, 8), {p.name: bits for p in floats.products})
    corrections = reconstruct(calibration, widths)
    bound = bound_error(floats, write_model(calibration, widths, corrections), {"x": (-1, 1)}, {})
    return floats, write_model(calibration, widths, corrections, runnable=True), samples, bound


def assert_bounded(floats, quantized, samples, bound):
    assert not bound.no_bound
    exact, rounded = FloatRunner(floats.model, ["y"]), FloatRunner(quantized, ["y"])
    for sample in samples:
        assert np.abs(exact(sample)["y"].astype(np.float64) - rounded(sample)["y"]).max() <= bound.outputs["y"]


@pytest.mark.parametrize("name", AFTER_A_PRODUCT)
def test_the_bound_holds_for_unusual_attributes_and_operands(name):
    assert_bounded(*after_a_product(*AFTER_A_PRODUCT[name]))


@pytest.mark.parametrize("beta", [0.0, 0.5, 3.0, -1.0])
@pytest.mark.parametrize("shape", [(4,), (1, 4), (1,), None])
def test_the_bound_holds_for_the_factor_of_a_bias(beta, shape):
    constants = {} if shape is None else {"b": np.full(shape, 2, np.float32) + np.arange(max(shape), dtype=np.float32)}
    gemm = node("Gemm", "x w" if shape is None else "x w b", "a", beta=beta)
    floats, quantized, samples, bound = after_a_product([node("Relu", "a")], constants, first=gemm, bits=8)
    assert_bounded(floats, quantized, samples, bound)
    assert bound.outputs["y"] < 0.5


def test_the_bound_holds_for_a_bias_of_rows():
    rng = np.random.default_rng(3)
    values = {"w": rng.normal(size=(4, 4)).astype(np.float32), "b": np.arange(4, dtype=np.float32).reshape(4, 1)}
    nodes = [node("Gemm", "x w b", "y", beta=0.5)]
    floats = FloatModel(simplify(model(nodes, {"x": (4, 4)}, values), {}, 1, {}))
    calibration = Calibration(floats, [{"x": rng.uniform(-1, 1, (4, 4)).astype(np.float32)} for _ in range(20)])
    calibration.collect(silent)
    widths = Widths({"x": 8}, {floats.products[0].name: 8})
    bound = bound_error(floats, write_model(calibration, widths), {"x": (-1, 1)}, {})
    assert_bounded(floats, write_model(calibration, widths, runnable=True), calibration.samples, bound)
    assert bound.outputs["y"] < 0.5


def attention(rng, *, normalized):
    """A float network of one head: scores of queries and keys, softmax or a clip, and their products by values."""
    weights = {name: rng.normal(size=(5, 4)).astype(np.float32) for name in ("wq", "wk", "wv")}
    scores = node("Softmax", "s", "p", axis=-1) if normalized else node("Clip", "s l h", "p")
    limits = {} if normalized else {"l": np.float32(-1), "h": np.float32(2)}
    nodes = [
        *(node("MatMul", f"x w{name}", name) for name in "qkv"),
        *(node("Transpose", "k", "t", perm=[0, 2, 1]), node("MatMul", "q t", "s"), scores, node("MatMul", "p v", "y")),
    ]
    return model(nodes, {"x": (2, 3, 5)}, {**weights, **limits})


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1 << 30), st.booleans(), st.sampled_from([3, 8]))
def test_the_bound_holds_for_products_of_two_edges(seed, normalized, bits):
    rng = np.random.default_rng(seed)
    floats = FloatModel(simplify(attention(rng, normalized=normalized), {}, 1, {}))
    samples: list[Feed] = [{"x": rng.uniform(-1, 1, (2, 3, 5)).astype(np.float32)} for _ in range(20)]
    corners = [{"x": rng.choice([-1, 1], (2, 3, 5)).astype(np.float32)} for _ in range(20)]
    calibration = Calibration(floats, samples)
    calibration.collect(silent)
    widths = Widths(dict.fromkeys(floats.quantized_edges, bits), {p.name: bits for p in floats.products})
    bound = bound_error(floats, write_model(calibration, widths), {"x": (-1, 1)}, {})
    assert_bounded(floats, write_model(calibration, widths, runnable=True), [*samples, *corners], bound)


def test_a_bound_of_a_product_of_two_edges_is_that_of_its_ends():
    """For a known factor and numbers that are not negative, the least and the greatest product are at the ends."""
    rng = np.random.default_rng(5)
    low = [rng.uniform(0, 1, shape) for shape in ((3, 4), (4, 2))]
    x, y = (Enclosure(ends, ends + 0.01) for ends in low)
    found = _bilinear(np.matmul, x, y, 4)
    assert (found.low <= x.low @ y.low).all()
    assert (x.high @ y.high <= found.high).all()
    np.testing.assert_allclose(found.high, x.high @ y.high, rtol=1e-12)
    assert (found.high - found.low <= 1.01 * (x.high @ y.high - x.low @ y.low)).all()


WITHOUT_A_RULE: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "another domain": ([node("Gelu", "a", domain=MICROSOFT)], {}, "Gelu of com.microsoft"),
    "falling hard sigmoid": ([node("HardSigmoid", "a", alpha=-0.2)], {}, "HardSigmoid that falls"),
    "falling leaky relu": ([node("LeakyRelu", "a", alpha=-0.2)], {}, "LeakyRelu"),
    "computed limits": (
        [node("ReduceMean", "a", "m", keepdims=0), node("Clip", "a m")],
        {},
        "Clip whose operand 1 is no constant",
    ),
    "computed weights": (
        [node("Reshape", "a s", "r"), node("Conv", "r r")],
        {"s": np.array([1, 1, 2, 2])},
        "Conv of two edges",
    ),
    "numbers above float32": (
        [node("Mul", "a m", "b"), node("Sigmoid", "b")],
        {"m": np.float32(3e38)},
        "beyond float32",
    ),
}


@pytest.mark.parametrize("name", WITHOUT_A_RULE)
def test_what_is_not_followed_gives_no_bound(name):
    nodes, constants, reason = WITHOUT_A_RULE[name]
    floats = FloatModel(simplify(_with_a_product(nodes, constants), {}, 1, {}))
    quantized = onnx.ModelProto()
    quantized.CopyFrom(floats.model)
    bound = bound_error(floats, quantized, {"x": (-1, 1)}, {})
    assert not bound.outputs
    assert reason in bound.no_bound


def _with_a_product(nodes, constants):
    values = {"w": np.ones((4, 4), np.float32), **constants}
    return model([node("MatMul", "x w", "a"), *nodes], {"x": (1, 4)}, values, opset=17)


def test_a_network_with_an_operator_of_another_domain_is_quantized():
    data = np.random.default_rng(1).normal(size=(8, 4)).astype(np.float32)
    source = _with_a_product([node("Gelu", "a", domain=MICROSOFT)], {})
    report = quantize(source, data, loss=0.5, isa="neon", act_bits=(8,), w_bits=(8,)).report
    assert "Gelu" in report.no_error_bound


def test_the_file_and_its_certificate_say_what_is_measured_and_what_proved(ended, tmp_path):
    rng = np.random.default_rng(1)
    floats = network(rng, "relu", "scores", groups=1, residual=True)
    data = rng.uniform(-1, 1, (20, 4, 6, 6)).astype(np.float32)
    result = quantize(floats, data, loss=0.5, isa="neon", act_bits=(8,), w_bits=(4, 8))
    (error,) = result.report.errors
    assert 0 < error.measured <= error.bound_in_ranges <= error.bound
    claims = claims_of(result.model)
    assert claims.proved.errors == {"y0": error.bound}
    assert claims.measured.errors == {"y0": error.measured}
    path, folder = tmp_path / "q.onnx", tmp_path / "c"
    onnx.save(result.model, path)
    ended(0, "compile", str(path), "--isa", "neon", "-o", str(folder))
    (certificate,) = folder.glob("*.certificate.json")
    quantizer = json.loads(certificate.read_text())["quantizer"]
    assert quantizer["proved"]["errors"] == {"y0": error.bound}
    assert "not checked" in quantizer["about"]
    shown, _ = ended(0, "verify", str(folder))
    assert "claimed by the file, not checked here" in " ".join(shown.split())


@pytest.mark.parametrize("text", ["{", "[]", '{"about": 3}', "x" * 100_000])
def test_other_metadata_are_no_claims(text):
    plain = model([node("Relu", "x", "y", name="n")], {"x": (1, 4)}, {})
    entry = plain.metadata_props.add()
    entry.key, entry.value = KEY, text
    assert read(plain).quantizer is None
