"""Each operator that fine-tuning has in PyTorch gives the numbers of ONNX Runtime, or of our exact reference."""

import numpy as np
import pytest
from support.onnx_files import QONNX, model, node

from bitsynth.errors import SpecError
from bitsynth.graph.read import read
from bitsynth.graph.reference import run
from bitsynth.quantization.float_model import FloatRunner

pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow

from bitsynth.quantization import torch_network  # noqa: E402

IMAGE, ROWS = (1, 3, 7, 6), (2, 5)
VECTOR = np.array([0.5, -0.25, 1.5], np.float32)


def weights(*shape):
    return np.random.default_rng(4).normal(size=shape).astype(np.float32)


def whole(*numbers):
    return np.array(numbers, np.int64)


def case(op, shape, *, reads="x", opset=17, constants=(), **attributes):
    """A network of one operator that reads `x` and constants called a, b and so on; `reads` names them in order."""
    names = dict(zip("abcdef", constants, strict=False))
    inputs = " ".join([reads, *names]) if reads == "x" else reads
    made = model([node(op, inputs, **attributes)], {"x": shape}, names, opset=opset)
    label = ",".join(f"{name}={value}" for name, value in attributes.items())
    return pytest.param(made, id=f"{op}-{opset}-{label or len(constants)}".replace(" ", ""))


CASES = [
    case("Conv", IMAGE, constants=[weights(4, 3, 3, 2)]),
    case("Conv", IMAGE, constants=[weights(4, 3, 3, 3), weights(4)], pads=[1, 0, 2, 1], strides=[2, 1]),
    case("Conv", IMAGE, constants=[weights(6, 1, 2, 3)], group=3, dilations=[2, 1]),
    case("Conv", IMAGE, constants=[weights(4, 3, 2, 3)], auto_pad="SAME_UPPER", strides=[2, 2]),
    case("Conv", IMAGE, constants=[weights(4, 3, 2, 3)], auto_pad="SAME_LOWER", strides=[2, 2]),
    case("Conv", (1, 3, 9), constants=[weights(4, 3, 3)], pads=[1, 1]),
    case("Conv", (1, 2, 4, 5, 3), constants=[weights(4, 2, 2, 3, 1)]),
    case("Gemm", ROWS, constants=[weights(5, 3)]),
    case("Gemm", ROWS, constants=[weights(3, 5), weights(3)], transB=1, alpha=0.5, beta=2.0),
    case("Gemm", (5, 2), constants=[weights(5, 3), weights(2, 3)], transA=1),
    case("MatMul", (2, 4, 5), constants=[weights(5, 3)]),
    *(case(op, IMAGE, constants=[weights(3, 1, 1) + 3]) for op in ("Add", "Sub", "Mul", "Div")),
    *(case(op, IMAGE, reads="a x", constants=[weights(3, 1, 1) + 3]) for op in ("Sub", "Div")),
    *(case(op, IMAGE) for op in ("Neg", "Abs", "Exp", "Relu", "Sigmoid", "HardSwish", "Tanh", "Erf", "Identity")),
    case("LeakyRelu", IMAGE),
    case("LeakyRelu", IMAGE, alpha=0.3),
    case("PRelu", IMAGE, constants=[weights(3, 1, 1)]),
    case("Clip", IMAGE),
    case("Clip", IMAGE, constants=[np.float32(-0.5), np.float32(0.75)]),
    case("Clip", IMAGE, reads="x - a", constants=[np.float32(0.75)]),
    case("Clip", IMAGE, opset=6, min=-0.5, max=0.25),
    case("Softmax", ROWS),
    case("Softmax", IMAGE, axis=1),
    case("LogSoftmax", IMAGE, axis=-2),
    case("BatchNormalization", IMAGE, constants=[VECTOR, -VECTOR, VECTOR / 3, VECTOR**2], epsilon=0.01),
    case("MaxPool", IMAGE, kernel_shape=[2, 3]),
    case("MaxPool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 0, 1], strides=[2, 2], dilations=[2, 1]),
    case("MaxPool", (1, 3, 9), kernel_shape=[2], auto_pad="SAME_UPPER", strides=[2]),
    case("AveragePool", IMAGE, kernel_shape=[2, 2], strides=[2, 2]),
    case("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 0, 1]),
    case("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 0, 1], count_include_pad=1),
    case("GlobalAveragePool", IMAGE),
    case("GlobalMaxPool", IMAGE),
    case("ReduceMean", IMAGE, axes=[2, -1], keepdims=0),
    case("ReduceMean", IMAGE, opset=18, constants=[whole(1)]),
    case("ReduceMean", IMAGE),
    case("Reshape", IMAGE, constants=[whole(0, -1, 6)]),
    case("Reshape", IMAGE, constants=[whole(2, 63)], allowzero=1),
    case("Flatten", IMAGE),
    case("Flatten", IMAGE, axis=3),
    case("Flatten", IMAGE, axis=0),
    case("Squeeze", (1, 3, 1, 2)),
    case("Squeeze", (1, 3, 1, 2), constants=[whole(-2)]),
    case("Squeeze", (1, 3, 1, 2), opset=11, axes=[0, 2]),
    case("Unsqueeze", ROWS, constants=[whole(-1, 0)]),
    case("Unsqueeze", ROWS, opset=11, axes=[1]),
    case("Transpose", IMAGE),
    case("Transpose", IMAGE, perm=[0, 2, 3, 1]),
    case("Concat", IMAGE, reads="x a x", constants=[weights(1, 2, 7, 6)], axis=1),
    case("Concat", IMAGE, reads="x x", axis=-1),
    case("Slice", IMAGE, constants=[whole(1, -4), whole(3, 1000), whole(1, -1), whole(1, 2)]),
    case("Slice", IMAGE, constants=[whole(0, 1), whole(1, -1)]),
    case("Slice", IMAGE, opset=9, starts=[2], ends=[-1], axes=[2]),
    case("Pad", IMAGE, constants=[whole(0, 0, 1, 2, 0, 1, 0, 3), np.float32(0.5)]),
    case("Pad", IMAGE, constants=[whole(0, 0, 1, 2, 0, 1, 0, 3)]),
]


def samples(shape, count=3):
    return np.random.default_rng(9).normal(size=(count, *shape)).astype(np.float32)


def in_torch(made, given):
    network = torch_network.TorchNetwork(made, double=True)
    return network.run({"x": network.tensor(given)}, ["y"])[0].numpy()


def input_shape(made):
    return tuple(size.dim_value for size in made.graph.input[0].type.tensor_type.shape.dim)


@pytest.mark.parametrize("made", CASES)
def test_an_operator_gives_the_numbers_of_onnx_runtime(made):
    given = samples(input_shape(made))
    results, reference = in_torch(made, given), FloatRunner(made, ["y"])
    for result, sample in zip(results, given, strict=True):
        np.testing.assert_allclose(result, reference({"x": sample})["y"], rtol=1e-5, atol=1e-5)


def test_square_roots_of_numbers_above_0():
    made = model([node("Abs", "x", "z"), node("Sqrt", "z")], {"x": ROWS}, opset=17)
    given = samples(ROWS)
    np.testing.assert_allclose(in_torch(made, given), np.sqrt(np.abs(given)), rtol=1e-6)


QUANTIZERS = [
    ("Quant", {"signed": 0, "narrow": 0}, [0.125, 3.0, 4.0]),
    ("Quant", {"signed": 1, "narrow": 0}, [0.25, 0.0, 3.0]),
    ("Quant", {"signed": 1, "narrow": 1}, [0.25, 0.0, 3.0]),
    ("Quant", {"signed": 1, "narrow": 1}, [[[[0.25]], [[0.5]], [[0.125]]], 0.0, 8.0]),
    ("BipolarQuant", {}, [0.375]),
]


@pytest.mark.parametrize(("op", "attributes", "numbers"), QUANTIZERS)
def test_a_quantizer_gives_the_numbers_of_the_exact_reference(op, attributes, numbers):
    """Codes are the same, also in the middle between two of them."""
    constants = dict(zip("abc", (np.float32(n) for n in numbers), strict=False))
    made = model([node(op, " ".join(["x", *constants]), domain=QONNX, **attributes)], {"x": IMAGE}, constants)
    given = np.round(samples(IMAGE) * 32) / np.float32(32)
    graph = read(made, reference="exact")
    wanted = [run(graph, {"x": sample}).floats("y") for sample in given]
    np.testing.assert_array_equal(in_torch(made, given), np.stack(wanted))


def test_every_operator_of_the_table_is_tried():
    tried = {made.values[0].graph.node[0].op_type for made in CASES} | {op for op, *_ in QUANTIZERS} | {"Sqrt"}
    assert tried == set(torch_network._TABLE)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (case("MaxPool", IMAGE, kernel_shape=[2, 2], ceil_mode=1), "its windows have another form"),
        (case("Slice", IMAGE, constants=[whole(5), whole(0), whole(2), whole(-1)]), "it has steps below 1"),
        (case("Pad", IMAGE, constants=[whole(0, 0, 1, 1, 0, 0, 1, 1)], mode="reflect"), "other than a constant"),
        (case("Softplus", IMAGE), "its operator is not in the table"),
    ],
)
def test_other_forms_are_refused(made, why):
    with pytest.raises(SpecError, match=why):
        torch_network.TorchNetwork(made.values[0] if hasattr(made, "values") else made)
