"""LSTM and GRU: as the reference evaluator of onnx and ONNX Runtime compute them."""

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator
from support.onnx_files import model, node, tensor

import bitsynth
from bitsynth.errors import SpecError
from bitsynth.graph import read, run

GATES = {"LSTM": 4, "GRU": 3}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


def recurrent(op, rng, *, sizes=(3, 2, 5, 4), direction="forward", layout=0, parts="bh", **more):
    """A model of one recurrent node of a random sequence, and its input.

    `sizes`: steps, batch, features, elements of the state. `parts`: b a bias, h initial states, p peepholes.
    """
    steps, batch, features, hidden = sizes
    count, rows = DIRECTIONS[direction], GATES[op] * hidden
    constants = {"W": (count, rows, features), "R": (count, rows, hidden), "B": (count, 2 * rows)}
    states = (batch, count, hidden) if layout else (count, batch, hidden)
    constants |= {"h": states, "c": states, "P": (count, 3 * hidden)}
    values = {name: rng.normal(size=shape).astype(np.float32) / 2 for name, shape in constants.items()}
    names = ["x", "W", "R", "B" if "b" in parts else "-", "-", "h" if "h" in parts else "-"]
    if op == "LSTM":
        names += ["c" if "h" in parts else "-", "P" if "p" in parts else "-"]
    outputs = "y y_h y_c" if op == "LSTM" else "y y_h"
    onnx_node = node(op, " ".join(names), outputs, hidden_size=hidden, direction=direction, layout=layout, **more)
    shape = (batch, steps, features) if layout else (steps, batch, features)
    used = {name: values[name] for name in names if name in values}
    return model([onnx_node], {"x": shape}, used, outputs=outputs), rng.normal(size=shape).astype(np.float32)


def close(got, want):
    return np.allclose(got, want, rtol=2e-5, atol=2e-6) and got.shape == want.shape


def runtime(onnx_model, x):
    """The outputs by ONNX Runtime, which has no layout 1 but all directions."""
    package = pytest.importorskip("onnxruntime")
    session = package.InferenceSession(onnx_model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})


@pytest.mark.slow
@settings(max_examples=30)
@given(
    op=st.sampled_from(["LSTM", "GRU"]),
    direction=st.sampled_from(["forward", "reverse", "bidirectional"]),
    steps=st.integers(1, 5),
    batch=st.integers(1, 3),
    parts=st.sets(st.sampled_from("bhp")),
    linear=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_results_are_those_of_onnx_runtime(op, direction, steps, batch, parts, linear, seed):
    more = {"linear_before_reset": int(linear)} if op == "GRU" else {}
    rng = np.random.default_rng(seed)
    onnx_model, x = recurrent(
        op, rng, sizes=(steps, batch, 5, 4), direction=direction, parts="".join(sorted(parts)), **more
    )
    values = run(read(onnx_model), {"x": x})
    for name, want in zip([o.name for o in onnx_model.graph.output], runtime(onnx_model, x), strict=True):
        assert close(values[name], want), name


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_batch_first_is_that_of_the_reference(op, rng):
    """Layout 1 is in the standard; ONNX Runtime does not have it."""
    onnx_model, x = recurrent(op, rng, layout=1, parts="b")
    first, _ = recurrent(op, np.random.default_rng(15), layout=0, parts="b")
    swapped = run(read(first), {"x": x.swapaxes(0, 1)})
    values = run(read(onnx_model), {"x": x})
    assert close(values["y"], swapped["y"].transpose(2, 0, 1, 3))
    assert close(values["y_h"], swapped["y_h"].transpose(1, 0, 2))
    want = list(ReferenceEvaluator(first).run(None, {"x": x.swapaxes(0, 1)}))
    assert close(swapped["y"], np.asarray(want[0]).reshape(swapped["y"].shape))


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_the_c_is_the_reference(op, rng):
    onnx_model, x = recurrent(op, rng, direction="bidirectional", parts="bh")
    net = bitsynth.compile(onnx_model, isa="avx2")
    want = run(net.graph, {"x": x})
    for name, got in net.trace({"x": x}).items():
        assert close(np.asarray(got), np.asarray(want[name])), name


def test_a_step_without_a_state_before_it_multiplies_no_zeros(rng):
    onnx_model, _ = recurrent("LSTM", rng, sizes=(1, 2, 5, 4), parts="b")
    assert sum(n.op == "matmul" for n in read(onnx_model).nodes) == 1


def test_quantized_weights_stay_codes(rng):
    """The inputs of all steps, quantized in QDQ, are one product of a kernel."""
    onnx_model, _ = recurrent("LSTM", rng, sizes=(4, 1, 32, 8), parts="b")
    graph = onnx_model.graph
    quantized = [
        node("QuantizeLinear", "x xs xz", "xq"),
        node("DequantizeLinear", "xq xs xz", "xd"),
        node("DequantizeLinear", "Wq ws", "Wd"),
    ]
    graph.node[0].input[0], graph.node[0].input[1] = "xd", "Wd"
    nodes = [*quantized, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    constants = {"xs": np.float32(0.05), "xz": np.uint8(128), "ws": np.float32(0.02)}
    constants["Wq"] = rng.integers(-8, 8, (1, 32, 32)).astype(np.int8)
    graph.initializer.extend(tensor(v, k) for k, v in constants.items())
    net = bitsynth.compile(onnx_model, isa="avx2")
    assert any(step.kind == "layer" for step in net.report().steps)


def quantized_dynamically(tmp_path, result, **options):
    """The model with an LSTM of codes, by ONNX Runtime's tools."""
    pytest.importorskip("onnxruntime")
    quantization = pytest.importorskip("onnxruntime.quantization")
    onnx.save(result, tmp_path / "float.onnx")
    quantization.quantize_dynamic(tmp_path / "float.onnx", tmp_path / "codes.onnx", **options)
    codes = onnx.load(tmp_path / "codes.onnx")
    assert [one.op_type for one in codes.graph.node] == ["DynamicQuantizeLSTM"]
    return codes


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("parts", ["b", "bhp"])
def test_an_lstm_of_codes_is_that_of_onnx_runtime(tmp_path, rng, direction, per_channel, parts):
    """On one thread: on several it quantizes the states of parts of a batch apart from each other."""
    onnx_model, x = recurrent("LSTM", rng, sizes=(6, 3, 5, 8), direction=direction, parts=parts)
    codes = quantized_dynamically(tmp_path, onnx_model, per_channel=per_channel)
    package = pytest.importorskip("onnxruntime")
    options = package.SessionOptions()
    options.intra_op_num_threads = 1
    want = package.InferenceSession(codes.SerializeToString(), options).run(None, {"x": x})
    for one, wanted in zip(run(read(codes), {"x": x}).outputs(), want, strict=True):
        np.testing.assert_allclose(one, wanted, atol=1e-6)
    net = bitsynth.compile(codes, isa="avx2")
    for one, wanted in zip(net(x), want, strict=True):
        np.testing.assert_allclose(one, wanted, atol=1e-6)


def test_codes_of_an_lstm_that_do_not_fit_are_refused(tmp_path, rng):
    codes = quantized_dynamically(tmp_path, recurrent("LSTM", rng)[0])
    (scale,) = (one for one in codes.graph.initializer if one.name == "W_scale")
    scale.CopyFrom(tensor(np.ones(3, np.float32), "W_scale"))
    with pytest.raises(SpecError, match=r"scales and zero points of \[3, 1\] numbers do not fit 16 columns"):
        read(codes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clip": 3.0}, "clip 3.0 is not compiled"),
        ({"activations": ["Sigmoid", "Elu", "Tanh"]}, "activations Sigmoid, Elu, Tanh are not compiled"),
        ({"activations": ["Sigmoid"]}, "activations Sigmoid are not compiled"),
        ({"input_forget": 1}, "input_forget is not compiled"),
        ({"sizes": (5000, 1, 5, 4)}, "5,000 steps, more than the 4,096 that are unrolled"),
    ],
)
def test_what_is_not_compiled_is_named(options, message, rng):
    onnx_model, _ = recurrent("LSTM", rng, **options)
    with pytest.raises(SpecError, match="LSTM the_LSTM: ") as refused:
        read(onnx_model)
    assert message in str(refused.value)


@pytest.mark.parametrize(("name", "shape"), [("W", (1, 16, 6)), ("W", (2, 16, 5)), ("R", (1, 15, 4)), ("B", (1, 16))])
def test_weights_that_do_not_fit_are_refused(name, shape, rng):
    onnx_model, _ = recurrent("LSTM", rng)
    (old,) = [x for x in onnx_model.graph.initializer if x.name == name]
    old.CopyFrom(onnx.numpy_helper.from_array(np.zeros(shape, np.float32), name))
    with pytest.raises(SpecError, match="do not fit"):
        read(onnx_model)


@pytest.mark.parametrize(("lengths", "fits"), [([3, 3], True), ([3, 2], False)])
def test_lengths_below_the_sequence_are_refused(lengths, fits, rng):
    onnx_model, _ = recurrent("LSTM", rng)
    onnx_model.graph.node[0].input[4] = "lengths"
    onnx_model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(lengths, np.int32), "lengths"))
    if fits:
        assert read(onnx_model).nodes
    else:
        with pytest.raises(SpecError, match="lengths of sequences below 3 are not compiled"):
            read(onnx_model)
