"""Files as they are found, and files that are refused: one message that names the node, and what to change."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.external_data_helper import set_external_data
from support.onnx_files import QONNX, model, node, parsed, quant, tensor

from bitsynth.errors import SpecError, ToolError
from bitsynth.graph import InputCodes, read, run
from bitsynth.graph.arithmetic import REFERENCES
from bitsynth.graph.read import file
from bitsynth.graph.types import Reals
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.lower import lower

RELU = [node("Relu", "x")]
X = {"x": (1, 4)}


@pytest.fixture
def refused(tmp_path):
    """`refused(model or bytes)`: the message with which a file of it is refused, less the path."""

    def call(onnx_model, **options):
        path = tmp_path / "net.onnx"
        path.write_bytes(onnx_model if isinstance(onnx_model, bytes) else onnx_model.SerializeToString())
        with pytest.raises(SpecError) as error:
            read(path, **options)
        message = str(error.value)
        assert message.startswith(f"{path}: ")
        assert "\n" not in message
        return message.removeprefix(f"{path}: ")

    return call


# As they are found.


def test_initializers_may_be_inputs_too(rng):
    onnx_model = quant(2)
    onnx_model.graph.input.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, ()))
    assert read(onnx_model).inputs == ("x",)


@pytest.mark.parametrize("domain", ["", "onnx.brevitas", "finn.custom_op.general", QONNX])
def test_domains_need_no_import(domain):
    onnx_model = quant(2)
    onnx_model.graph.node[0].domain = domain
    del onnx_model.opset_import[1:]
    assert [n.op for n in read(onnx_model).nodes] == ["quantize"]


def test_no_opset_at_all():
    onnx_model = quant(2)
    del onnx_model.opset_import[:]
    assert [n.op for n in read(onnx_model).nodes] == ["quantize"]


def test_widths_may_be_computed():
    onnx_model = quant(2)
    onnx_model.graph.node[0].input[3] = "bits"
    nodes = [node("Constant", "", "r", value_float=2.3), node("Ceil", "r", "bits"), *onnx_model.graph.node]
    del onnx_model.graph.node[:]
    onnx_model.graph.node.extend(nodes)
    graph = read(onnx_model)
    assert graph.edges["y"].integers.bits == 3


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (4, 1), (1, 64), (4, 64)])
def test_shapes_of_scales(rng, shape):
    scale = rng.uniform(0.1, 1, shape).astype(np.float32)
    x = rng.normal(size=(4, 64)).astype(np.float32)
    got = run(read(quant(4, scale)), {"x": x})["y"]
    assert (got == np.clip(np.rint(x / scale), -8, 7)).all()


def test_dynamic_flatten():
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Unsqueeze", "n axes", "m"),
        node("Concat", "m rest", "to", axis=0),
        node("Reshape", "x to"),
    ]
    given = {"zero": np.int64(0), "axes": np.array([0]), "rest": np.array([-1])}
    graph = read(model(nodes, {"x": (2, 3, 4)}, given))
    assert [n.op for n in graph.nodes] == ["reshape"]
    assert graph.edges["y"].shape == (2, 12)


def test_the_batch_is_fixed_by_an_option(refused):
    onnx_model = model(RELU, {"x": ("N", 4)})
    assert refused(onnx_model) == "input x: axis 0 is N; fix the batch with --batch N"
    assert read(onnx_model, batch=3).edges["y"].shape == (3, 4)
    assert refused(model(RELU, {"x": (1, "W")}), batch=3) == "input x: axis 1 is W; give --shape x=1xW with numbers"


def test_a_batch_norm_that_is_written_out(rng):
    nodes = [
        node("Sub", "x mean", "a"),
        node("Pow", "var half", "b"),
        node("Div", "a b", "c"),
        node("Mul", "c gain", "d"),
        node("Add", "d bias"),
    ]
    given = {k: rng.uniform(0.5, 2, (4,)).astype(np.float32) for k in ("mean", "var", "gain", "bias")}
    x = rng.normal(size=(1, 4)).astype(np.float32)
    want = (x - given["mean"]) / np.sqrt(given["var"]) * given["gain"] + given["bias"]
    onnx_model = model(nodes, X, given | {"half": np.float32(0.5)})
    np.testing.assert_allclose(run(read(onnx_model), {"x": x}).outputs()[0], want, rtol=1e-6)


def test_functions_are_written_out(rng):
    body = [node("Relu", "a", "b"), node("Neg", "b", "c")]
    function = helper.make_function("own", "Both", ["a"], ["c"], body, [helper.make_opsetid("", 21)])
    onnx_model = model([node("Both", "x", domain="own")], X, domains={"own": 1})
    onnx_model.functions.append(function)
    assert [n.op for n in read(onnx_model).nodes] == ["relu", "neg"]


def test_functions_that_grow_without_end(refused):
    onnx_model = model([node("F40", "x", domain="own")], X, domains={"own": 1})
    for k in range(41):
        body = [node(f"F{k - 1}" if k else "Relu", *names, domain="own" if k else "") for names in ("ab", "bc")]
        onnx_model.functions.append(
            helper.make_function("own", f"F{k}", ["a"], ["c"], body, [helper.make_opsetid("own", 1)])
        )
    assert refused(onnx_model).startswith("its functions are 2,199,023,255,552 nodes, more than")


@pytest.mark.parametrize("op", ["Add", "MatMul"])
def test_results_of_too_many_elements(refused, op):
    message = refused(model([node(op, "x z")], {"x": (100_000, 1), "z": (1, 100_000)}))
    assert message.startswith(f"{op} the_{op}: makes a tensor of shape (100000, 100000), more than")


def test_axes_of_no_element(refused):
    open_size = refused(model([node("Relu", "x")], {"x": (1, 0)}))
    assert open_size == "input x: axis 1 is unknown; give --shape x=1xL with numbers"


@pytest.mark.parametrize("reference", [name for name in REFERENCES if name != "tflite"])
def test_roots_of_numbers_below_0_are_0(reference):
    quantizer = node("Quant", "r s z b", domain=QONNX, signed=1, narrow=0, rounding_mode="ROUND")
    given = {"s": np.float32(0.5), "z": np.float32(0), "b": np.float32(4)}
    graph = read(model([node("Sqrt", "x", "r"), quantizer], X, given), reference=reference)
    assert run(graph, {"x": np.array([[-4.0, -1e-30, 0, 4]])})["y"].tolist() == [[0, 0, 0, 4]]


def test_nodes_in_any_order():
    onnx_model = model([node("Relu", "h", "y"), node("Neg", "x", "h")], X)
    assert [n.op for n in read(onnx_model).nodes] == ["neg", "relu"]


def test_inputs_of_known_codes():
    onnx_model = model([node("MatMul", "x w")], X, {"w": np.ones((4, 2), np.float32)})
    assert read(onnx_model).edges["y"].type == Reals()
    graph = read(onnx_model, codes=InputCodes(2, 0.5))
    kind = graph.edges["y"].integers
    assert (kind.least, kind.most, float(kind.scale)) == (0, 12, 0.5)
    assert run(graph, {"x": np.array([[0, 0.5, 1, 1.5]])}).outputs()[0].tolist() == [[3.0, 3.0]]
    with pytest.raises(SpecError, match=r"input x: 0\.25 is not one of the integers 0 to 3, times 0\.5"):
        run(graph, {"x": np.array([[0, 0.25, 1, 1.5]])})


def test_codes_are_of_inputs_that_no_quantizer_reads():
    given = {"s": np.float32(0.5), "z": np.float32(0), "b": np.float32(4)}
    nodes = [node("Quant", "x s z b", "q", domain=QONNX, signed=1, narrow=0), node("Add", "q u", "y")]
    graph = read(model(nodes, {"x": (1, 4), "u": (1, 4)}, given), codes=InputCodes(2, 0.5))
    assert graph.edges["x"].type == Reals()
    assert graph.edges["u"].integers.most == 3
    with pytest.raises(SpecError, match="no float input is without a quantizer; leave out the codes"):
        read(model(nodes[:1], {"x": (1, 4)}, given, outputs="q"), codes=InputCodes(2, 0.5))


def test_a_shape_below_0(refused):
    onnx_model = model([node("Add", "x w")], X, {"w": np.ones((1, 4), np.float32)})
    onnx_model.graph.initializer[0].dims[0] = -1
    assert refused(onnx_model) == "w: its shape is (-1, 4); sizes are 0 or more"


def test_external_data_beside_the_model(tmp_path, rng):
    w = rng.normal(size=(4, 3)).astype(np.float32)
    onnx.save(external(w, "data/w.bin"), tmp_path / "net.onnx")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(w.tobytes())
    x = rng.normal(size=(1, 4)).astype(np.float32)
    np.testing.assert_allclose(run(read(tmp_path / "net.onnx"), {"x": x}).outputs()[0], x @ w, rtol=1e-5)


# What is refused.


def external(w, location, **info):
    """A model whose weights are said to lie elsewhere."""
    onnx_model = model([node("MatMul", "x w")], X, {"w": w})
    (weights,) = onnx_model.graph.initializer
    set_external_data(weights, location, **info)
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    return onnx_model


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("../w.bin", "w: external data '../w.bin' lie outside the model's folder; save the model in one file"),
        ("/etc/passwd", "w: external data '/etc/passwd' lie outside the model's folder"),
        ("link", "w: external data 'link' lie outside the model's folder"),
        ("none.bin", "w: external data 'none.bin' do not exist; put the file into the folder of the model"),
        ("a\0b", "w: external data 'a\\x00b' lie outside"),
        ("", "w: external data '' lie outside the model's folder"),
        ("short.bin", "w: its data do not fit its type and shape"),
    ],
)
def test_external_data_elsewhere(tmp_path, refused, location, why):
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "short.bin").write_bytes(b"1234")
    assert refused(external(np.ones((4, 3), np.float32), location)).startswith(why)


def test_external_data_of_no_size(tmp_path, refused):
    with (tmp_path / "huge.bin").open("wb") as sparse:
        sparse.truncate(1 << 32)
    message = refused(external(np.ones((4, 3), np.float32), "huge.bin"))
    assert message == "w: external data of more than 2,147,483,647 bytes are not read"
    message = refused(external(np.ones((4, 3), np.float32), "huge.bin", offset=1 << 31, length=1 << 33))
    assert message == "w: external data end after huge.bin does; the file is cut short"


def test_damaged_files_are_refused(refused):
    whole = quant(2).SerializeToString()
    assert refused(b"").startswith("not an ONNX model")
    assert refused(b"\x00\x01\x02" * 100).startswith("not an ONNX model, or cut short")
    for length in range(1, len(whole) - 1, 7):
        assert refused(whole[:length])


def broken(**changes):
    """A model of one Relu with parts replaced."""
    onnx_model = model(RELU, X)
    for name, value in changes.items():
        del getattr(onnx_model.graph, name)[:]
        getattr(onnx_model.graph, name).extend(value)
    return onnx_model


def untyped():
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1,))
    given.type.tensor_type.ClearField("shape")
    return given


def looping():
    body = helper.make_graph([], "body", [], [])
    return node("Loop", "", "y", name="again", body=body)


BROKEN = {
    "Frob the_Frob: no operator that is compiled; replace it": broken(node=[node("Frob", "x")]),
    "Frob the_Frob: no operator of far that is compiled": broken(node=[node("Frob", "x", domain="far")]),
    "Frob a: no operator that is compiled; replace it, or cut the network before it; the same holds for Grob": broken(
        node=[node("Frob", "x", "h", name="a"), node("Frob", "h", "i"), node("Grob", "i")]
    ),
    "FloatQuant the_FloatQuant: quantizes to small floats": broken(node=[node("FloatQuant", "x", domain=QONNX)]),
    "Loop again: its body has 0 inputs and 0 outputs, which do not fit 0 states": broken(node=[looping()]),
    "Relu the_Relu: nothing makes its input z": broken(node=[node("Relu", "z")]),
    "Relu one: depends on its own output; the graph has a cycle": broken(
        node=[node("Relu", "b", "a", name="one"), node("Neg", "a", "b", name="two"), node("Relu", "x")]
    ),
    "Neg the_Neg: makes y, which exists already": broken(node=[*RELU, node("Neg", "x")]),
    "nothing makes the output z": broken(output=[helper.make_tensor_value_info("z", TensorProto.FLOAT, None)]),
    "the network has no output": broken(output=[]),
    "input x has no shape; give it, such as --shape x=1x3x224x224": broken(input=[untyped()]),
    "initializer w appears twice": broken(initializer=[tensor(1.0, "w"), tensor(1.0, "w")]),
    "w: it holds NaN; train or export": broken(initializer=[tensor(np.float32("nan"), "w")]),
    "input x: type complex64 is not compiled": broken(
        input=[helper.make_tensor_value_info("x", TensorProto.COMPLEX64, (1,))]
    ),
    "not an ONNX model: it has no nodes": broken(node=[]),
    "input x: shape (100000, 100000) has more than": broken(
        input=[helper.make_tensor_value_info("x", TensorProto.FLOAT, (100000, 100000))]
    ),
    "Reshape the_Reshape: shape is computed at run time; it must be a constant": broken(node=[node("Reshape", "x x")]),
    "Relu the_Relu: input 0 is missing": broken(node=[node("Relu", "")]),
    "LeakyRelu the_LeakyRelu: attribute alpha is NaN": broken(node=[node("LeakyRelu", "x", alpha=float("nan"))]),
    "BatchNormalization the_BatchNormalization: its inputs and attributes do not fit: could not convert": broken(
        node=[node("BatchNormalization", "x g g g g", epsilon="none")],
        initializer=[tensor(np.ones(4, np.float32), "g")],
    ),
    "Quant the_Quant: zero point -3e+38 is not a number of at most 32 bits": quant(2, zero=-3e38),
}


@pytest.mark.parametrize("why", BROKEN)
def test_broken_graphs_are_refused(refused, why):
    assert refused(BROKEN[why]).startswith(why)


def convolving(weights=(2, 3, 3, 3), image=(1, 3, 8, 8), **attributes):
    return model([node("Conv", "x w", **attributes)], {"x": image}, {"w": np.ones(weights, np.float32)})


@pytest.mark.parametrize(
    ("onnx_model", "why"),
    [
        (convolving((2, 4, 3, 3)), "3 channels do not fit weights (2, 4, 3, 3) in 1 groups"),
        (convolving(image=(1, 3, 2, 2)), "an image of (2, 2) is smaller than the window (3, 3)"),
        (convolving((0, 3, 3, 3)), "weights (0, 3, 3, 3) have no elements"),
        (convolving(group=0), "group is 0"),
        (convolving(strides=[0, 1]), "strides (0, 1) must be 2 numbers above 0"),
        (convolving(pads=[1, 1, 1]), "pads [1, 1, 1] do not fit a window (3, 3)"),
        (convolving(auto_pad="SOME"), "auto_pad 'SOME' is not known"),
        (convolving(image=(3, 8)), "a window (3, 3) does not fit an image of shape (3, 8)"),
        (convolving(kernel_shape=[5, 5]), "kernel_shape (5, 5) does not match weights (2, 3, 3, 3)"),
    ],
)
def test_convolutions_that_do_not_fit(refused, onnx_model, why):
    assert refused(onnx_model).startswith(f"Conv the_Conv: {why}")


def test_sums_that_leave_int32(refused):
    given = {"w": np.full((70_000, 1), -128, np.int8)}
    onnx_model = model([node("MatMulInteger", "x w")], {"x": (1, 70_000)}, given, dtype=TensorProto.UINT8)
    assert refused(onnx_model) == (
        "MatMulInteger the_MatMulInteger: sums go from -2,284,800,000 to 0, which int32 does not hold"
    )


def test_operators_of_times_to_come(refused):
    assert refused(model(RELU, X, opset=99)).startswith("opset 99 is newer than is known, 28; export")


def test_thousands_of_nodes():
    count = 2000
    nodes = [node("Neg" if k % 2 else "Relu", f"h{k}" if k else "x", f"h{k + 1}") for k in range(count)]
    graph = read(model(nodes, X, outputs=f"h{count}"))
    assert len(graph.nodes) == count
    assert len(lower(graph, NetworkTarget("avx2")).steps) == 2


def test_options_that_make_no_sense():
    for options, why in (
        ({"batch": 0}, "batch is 0"),
        ({"batch": "two"}, "batch is 'two'"),
        ({"reference": "tflite"}, "the reference tflite is for TensorFlow Lite files alone"),
        ({"reference": "torch"}, "unknown reference 'torch'; known: exact, onnxruntime, onnx, tflite"),
        ({"codes": InputCodes(0)}, "bits must be a whole number from 1 to 8, not 0"),
        ({"codes": InputCodes(2, encoding="gray")}, "unknown encoding 'gray'; known: unsigned"),
    ):
        with pytest.raises(SpecError, match=why):
            read(model(RELU, X), **options)


def test_no_such_file(tmp_path):
    with pytest.raises(SpecError, match=r"none\.onnx: cannot read it: No such file"):
        read(tmp_path / "none.onnx")


def test_without_the_package(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(ToolError, match=r"install it with pip install 'onnx>=1\.20,<2'"):
        file.require_onnx()


def test_a_file_is_as_good_as_a_model():
    assert read(parsed(quant(2))).nodes == read(quant(2)).nodes
