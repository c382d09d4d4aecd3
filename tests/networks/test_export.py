"""Networks as pre-quantized patterns: the same codes at every joint, in standard operators alone."""

from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from onnx import TensorProto, checker, helper
from support.onnx_files import QONNX, model, node
from support.prequantized_networks import prequantized

from bitsynth.cli import main
from bitsynth.errors import SpecError
from bitsynth.graph import read, run
from bitsynth.graph.ir import Names
from bitsynth.network.check import draw
from bitsynth.network.fusion.codes import operand_of
from bitsynth.network.patterns import export_integers
from bitsynth.network.patterns.writer import PatternWriter

FASHION = Path(__file__).parents[2] / "examples" / "fashion" / "fashion_a2w2_qonnx.onnx"
PATTERNS = {"MatMulInteger", "ConvInteger", "Add", "Cast", "Mul", "Sub", "QuantizeLinear", "Clip"}


def joints(graph, onnx_model):
    """The codes of the network's own edges in a file, as outputs of that."""
    names = [
        n.output[0]
        for n in onnx_model.graph.node
        if n.output[0] in graph.edges and n.op_type in ("QuantizeLinear", "Clip")
    ]
    inner = [n for n in names if n not in graph.outputs]
    onnx_model.graph.output.extend(
        helper.make_tensor_value_info(n, TensorProto.UINT8, graph.edges[n].shape) for n in inner
    )
    return inner


def codes(graph, name, integers):
    return operand_of(graph.edges[name]).encode(integers, name)


def require_same(graph, count=3, *, shifts=False):
    """SpecError or AssertionError unless the exported file is valid and gives the network's codes; its operators."""
    onnx_model = export_integers(graph, shifts=shifts)
    operators = {n.op_type for n in onnx_model.graph.node}
    inner = joints(graph, onnx_model)
    checker.check_model(onnx_model, full_check=True)
    assert len({n.name for n in onnx_model.graph.node}) == len(onnx_model.graph.node)
    back = read(onnx_model)
    assert back.reference == "onnxruntime" or not operators & {"MatMulInteger", "ConvInteger"}
    for inputs in draw(graph, count):
        want = run(graph, inputs)
        given = {name: codes(graph, name, want[name]).astype(np.uint8) for name in back.inputs}
        got = run(back, given)
        for name in inner:
            np.testing.assert_array_equal(got[name], codes(graph, name, want[name]), name)
        for name in graph.outputs:
            np.testing.assert_allclose(got.floats(name).astype(float), want.floats(name).astype(float), 1e-5, 1e-5)
    return operators, inner


def quant(given, result, bits, signed=0, rounding="ROUND"):
    name = f"{given}_{result}"
    attributes = {"signed": signed, "narrow": int(bits > 1 and signed), "rounding_mode": rounding}
    return node("Quant", f"{given} {result}_s zero {result}_b", result, domain=QONNX, name=name, **attributes)


def test_a_reshape_before_the_next_product_stays(rng):
    """As in CNV, whose last convolution leaves one pixel."""
    weights = {"wq": rng.integers(-1, 2, (8, 4, 2, 2)), "wr": rng.integers(-1, 2, (8, 3))}
    onnx_model = model(
        [
            quant("x", "a", 2),
            node("Conv", "a wq", "sums", name="conv"),
            quant("sums", "q", 2),
            node("Flatten", "q", "flat", name="flatten"),
            node("MatMul", "flat wr", "y", name="dense"),
        ],
        {"x": (1, 4, 2, 2)},
        {name: w.astype(np.float32) for name, w in weights.items()}
        | {"zero": np.float32(0), **{f"{n}_s": np.float32(1) for n in "aq"}, **{f"{n}_b": np.float32(2) for n in "aq"}},
    )
    require_same(read(onnx_model))


@pytest.fixture
def chain(rng):
    """Two convolutions with batch norms between quantizers, a residual of codes, a pool and floats behind."""

    def build(act, weight, *, last=()):
        constants = {"zero": np.float32(0), "x_s": np.float32(0.25), "x_b": np.float32(act)}
        nodes = [quant("x", "a", act)]
        for name, given in (("a", None), ("b", "a"), ("c", "b")):
            constants |= {f"{name}_s": np.float32(rng.uniform(0.2, 0.7)), f"{name}_b": np.float32(act)}
            if given is None:
                continue
            w = rng.normal(size=(8, 8, 3, 3)).astype(np.float32)
            constants |= {f"w{name}": w, f"q{name}_s": np.float32(0.7), f"q{name}_b": np.float32(weight)}
            bn = rng.uniform(0.05, 0.4, (4, 8)).astype(np.float32) * np.array([[1], [1], [1], [9]], np.float32)
            constants |= {f"{name}{k}": row for k, row in enumerate(bn)}
            nodes += [
                quant(f"w{name}", f"q{name}", weight, 1),
                node("Conv", f"{given} q{name}", f"sum{name}", name=f"conv_{name}", pads=[1, 1, 1, 1]),
                node(
                    "BatchNormalization", f"sum{name} {name}0 {name}1 {name}2 {name}3", f"n{name}", name=f"norm_{name}"
                ),
                *([node("Add", "nc a", "joined", name="join")] if name == "c" else []),
                node("Relu", "joined" if name == "c" else f"n{name}", f"r{name}", name=f"relu_{name}"),
                quant(f"r{name}", name, act),
            ]
        nodes += [node("MaxPool", "c", "p", kernel_shape=[2, 2]), *last]
        return model(nodes, {"x": (1, 8, 6, 6)}, constants, outputs="p" if not last else "y")

    return build


@pytest.mark.parametrize(("act", "weight"), [(1, 2), (2, 2), (2, 4), (3, 3)])
def test_codes_are_the_same_at_every_joint(chain, act, weight):
    operators, inner = require_same(read(chain(act, weight)))
    assert {"ConvInteger", "QuantizeLinear"} <= operators <= {*PATTERNS, "MaxPool", "Identity"}
    assert len(inner) == 2


ONE = (node("Mul", "h0 m", "h1"),)
TWO = (node("Mul", "h0 m", "h1"), node("Mul", "h1 shift", "h2"))
RELU = (node("Mul", "h0 m", "h1"), node("Relu", "h1", "h2"))
TANH = (
    *(node("QuantizeLinear", "h0 hundred zero", "h1"), node("DequantizeLinear", "h1 scale zero", "h2")),
    *(node("Tanh", "h2", "h3"), node("Div", "h3 scale", "h4")),
)
HALF = (
    *(node("Mul", "h0 m", "h1"), node("Cast", "h1", "h2", to=TensorProto.FLOAT16), node("Sigmoid", "h2", "h3")),
    *(node("Cast", "h3", "h4", to=TensorProto.FLOAT), node("Mul", "h4 hundred", "h5")),
)


@pytest.mark.parametrize("shifts", [False, True])
@pytest.mark.parametrize(
    ("product", "shape", "middle", "kept"),
    [
        ("MatMulInteger", (4, 16), ONE, {"Mul"}),
        ("MatMulInteger", (4, 16), RELU, {"Mul"}),
        ("ConvInteger", (1, 4, 6, 6), TWO, {"Mul"}),
        ("MatMulInteger", (4, 16), TANH, {"Mul", "Tanh"}),
        ("ConvInteger", (1, 4, 6, 6), HALF, {"Mul", "Sigmoid"}),
    ],
    ids=["one Mul", "ReLU", "two Mul", "tanh of codes", "sigmoid in half precision"],
)
def test_patterns_come_back_as_patterns(product, shape, middle, kept, shifts):
    constants: dict[str, Any] = {
        "m": np.float32(0.0473),
        "shift": np.float32(0.5),
        "hundred": np.float32(100),
        "scale": np.float32(1 / 64),
    }
    given = read(prequantized(*middle, product=product, shape=shape, numbers=True, **constants))
    operators, _ = require_same(given, shifts=shifts)
    assert {product, "QuantizeLinear", *kept} <= operators


@hypothesis.given(
    st.lists(st.floats(2.0**-100, 2.0**60, width=32), min_size=1, max_size=4),
    st.integers(-(2**31), 2**31 - 1),
)
def test_an_integer_and_a_shift_are_the_factor(factors, number):
    """To the bit, of any sum."""
    writer = PatternWriter(Names(), shifts=True)
    writer.scale("sums", np.array(factors, np.float32))
    integer, shift = (writer.constants[name] for name in ("constant_1", "constant_3"))
    assert (integer == integer.astype(np.int64)).all()
    assert (np.frexp(shift)[0] == 0.5).all()
    sums = np.float32(number)
    np.testing.assert_array_equal(sums * integer * shift, sums * np.array(factors, np.float32))


def test_a_factor_without_an_integer_and_a_shift_is_refused():
    with pytest.raises(SpecError, match="too small for an integer and a shift of float32"):
        PatternWriter(Names(), shifts=True).scale("sums", np.array(2.0**-110, np.float32))


def test_real_numbers_are_no_float32(chain):
    """A function of real numbers has no pattern; the same in float32 has."""
    onnx_model = prepared(node("Tanh", "a", "t", name="curve"), quant("t", "y", 4))
    with pytest.raises(SpecError, match=r"quantize is none of its operators"):
        export_integers(read(onnx_model))
    operators, _ = require_same(read(onnx_model, reference="onnxruntime"))
    assert "Tanh" in operators


def test_what_has_no_pattern_is_refused_by_name(chain, tmp_path):
    """And nothing is written."""
    file, out = tmp_path / "net.onnx", tmp_path / "out.onnx"
    file.write_bytes(chain(2, 2, last=[node("Softmax", "p", "y", name="soft")]).SerializeToString())
    with pytest.raises(SpecError, match=r"Softmax soft: softmax is none of its operators"):
        export_integers(read(file))
    assert main(["export", str(file), "--patterns", "-o", str(out)]) == 2
    assert main(["export", str(file), "-o", str(out)]) == 2
    assert not out.exists()


def prepared(*nodes, outputs="y", shape=(1, 2, 5, 5), start=None, **constants):
    """Codes of 4 bits, then these nodes; quantizers of y and b have 4 bits as well."""
    steps = {f"{n}_{k}": np.float32(v) for n in "aby" for k, v in (("s", 0.5), ("b", 4))}
    return model(
        [start or quant("x", "a", 4), *nodes],
        {"x": shape},
        steps | {"zero": np.float32(0)} | constants,
        outputs=outputs,
    )


def test_sums_are_without_the_zero_point():
    pool = node("GlobalAveragePool", "a", "mean", name="pool")
    require_same(read(prepared(pool, quant("mean", "y", 4), zero=np.float32(3))))


@pytest.mark.parametrize("size", [5, 6])
def test_a_pool_has_the_networks_last_windows(size):
    pool = node("MaxPool", "a", "y", kernel_shape=[1, 1], strides=[2, 3], ceil_mode=1, name="pool")
    require_same(read(prepared(pool, shape=(1, 2, size, size))))


@pytest.mark.parametrize("factor", [1, -1, [[[1]], [[-1]]]])
def test_integers_times_less_than_nothing_are_others(factor):
    """Though their range is the same; times 1 they stay."""
    start = quant("x", "a", 4, signed=1)
    mul = node("Mul", "a m", "n", name="turn")
    onnx_model = prepared(mul, start=start, m=np.float32(factor), outputs="n", a_s=np.float32(1))
    try:
        require_same(read(onnx_model))
    except SpecError as error:
        assert factor != 1
        assert "Mul turn" in str(error)  # noqa: PT017


def test_numbers_of_several_outputs():
    """An output that another node reads."""
    pool, w = node("MaxPool", "a", "b", kernel_shape=[2, 2], name="pool"), np.array([[[[1]], [[-2]]]], np.float32)
    conv = node("Conv", "b w", "sums", name="conv")
    require_same(read(prepared(pool, conv, quant("sums", "y", 4), outputs="b y", w=w)))


@pytest.mark.parametrize("outputs", ["a", "a y", "y w"])
def test_an_output_that_no_code_makes_is_refused(outputs):
    pool = node("MaxPool", "a", "y", kernel_shape=[2, 2], name="pool")
    onnx_model = prepared(pool, outputs=outputs, w=np.ones(2, np.float32))
    with pytest.raises(SpecError, match=r"output . is made of no codes"):
        export_integers(read(onnx_model))


def test_an_input_without_a_quantizer_is_refused():
    onnx_model = model([node("Relu", "x", "y", name="plain")], {"x": (1, 4)})
    with pytest.raises(SpecError, match="Relu plain: y comes to it without a quantizer"):
        export_integers(read(onnx_model))


@pytest.mark.slow
def test_the_example_is_the_same_in_onnxruntime(tmp_path):
    out = tmp_path / "out.onnx"
    assert main(["export", str(FASHION), "--patterns", "-o", str(out)]) == 0
    checker.check_model(str(out), full_check=True)
    _, inner = require_same(graph := read(FASHION), 2)
    assert len(inner) == 5
    runtime = pytest.importorskip("onnxruntime")
    onnx_model = export_integers(graph)
    inner = joints(graph, onnx_model)
    session = runtime.InferenceSession(onnx_model.SerializeToString(), providers=["CPUExecutionProvider"])
    (inputs,) = draw(graph, 1)
    want = run(graph, inputs)
    (name,) = (x.name for x in session.get_inputs())
    got = session.run(inner, {name: codes(graph, name, want[name]).astype(np.uint8)})
    for name, value in zip(inner, got, strict=True):
        np.testing.assert_array_equal(value, codes(graph, name, want[name]), name)
