"""Sizes that files leave open, inputs made constant, and branches that constants select."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from support.onnx_files import model, node, parsed

import bitsynth
from bitsynth.errors import SpecError
from bitsynth.graph import read, run
from bitsynth.graph.read.importer import inline_branches
from bitsynth.graph.read.inputs import fix_inputs

RELU = [node("Relu", "x")]


def shape_of(result, **options):
    return read(result, **options).edges["x"].shape


@pytest.mark.parametrize(
    ("shapes", "batch"),
    [({"x": (2, 3, 8, 8)}, None), ({"H": 8, "W": 8}, 2), ({"N": 2, "H": 8, "W": 8}, None), ({"x": (2, 3, 8, 8)}, 2)],
)
def test_a_shape_is_that_of_an_input_or_of_symbols(shapes, batch):
    onnx_model = model(RELU, {"x": ("N", 3, "H", "W")})
    assert shape_of(onnx_model, shapes=shapes, batch=batch) == (2, 3, 8, 8)


def test_a_size_of_one_input_is_that_of_its_symbol_in_others():
    onnx_model = model([node("Add", "x s")], {"x": ("batch", 4), "s": (1, "batch", 4)})
    assert read(onnx_model, shapes={"x": (3, 4)}).edges["s"].shape == (1, 3, 4)
    assert read(onnx_model, batch=3).edges["s"].shape == (1, 3, 4)


def test_sizes_without_a_symbol_may_differ():
    assert shape_of(model(RELU, {"x": (1, "?", "?")}), shapes={"x": (1, 2, 3)}) == (1, 2, 3)


def test_what_follows_from_a_shape_is_computed():
    nodes = [node("Shape", "x", "s"), node("Gather", "s zero", "n"), node("Unsqueeze", "n zero_axis", "m")]
    nodes += [node("Concat", "m rest", "to", axis=0), node("Reshape", "x to")]
    constants = {"zero": np.int64(0), "zero_axis": np.array([0]), "rest": np.array([-1])}
    onnx_model = model(nodes, {"x": ("N", "H", "W")}, constants)
    assert read(onnx_model, shapes={"x": (2, 3, 4)}).edges["y"].shape == (2, 12)


@pytest.mark.parametrize(
    ("dims", "options", "message"),
    [
        (("N", 4), {}, "input x: axis 0 is N; fix the batch with --batch N"),
        (
            ("N", 3, "?", "?"),
            {},
            "axis 0 is N, axis 2 is unknown, axis 3 is unknown; give --shape x=Nx3xHxW with numbers",
        ),
        (("N", 3, "?", "?"), {"batch": 1}, "axis 2 is unknown, axis 3 is unknown; give --shape x=1x3xHxW with numbers"),
        (("N", "height"), {"batch": 1}, "input x: axis 1 is height; give --shape x=1xHEIGHT with numbers"),
        (("N", 4), {"shapes": {"x": (1, 5)}}, "input x: axis 1 is 4 in the file; --shape gives 5"),
        (("N", 4), {"shapes": {"x": (1,)}}, "input x has 2 axes; --shape gives 1, 1"),
        (
            ("N", 4),
            {"shapes": {"M": 1}},
            "--shape M: neither an input nor an open size of the file; inputs: x; open sizes: N",
        ),
        (("N", "N"), {"shapes": {"x": (1, 2)}}, "N is 1 and, by --shape x, 2; it is one size in the file"),
        (("N", "M"), {"shapes": {"N": (1, 2)}}, "--shape N: one size, such as N=1, not 1x2"),
        (("N", 4), {"shapes": {"x": (0, 4)}}, "--shape x: sizes are whole numbers above 0, not 0x4"),
        (("N", 4), {"shapes": {"x": (-1, 4)}}, "--shape x: sizes are whole numbers above 0, not -1x4"),
        (("N", 4), {"shapes": {"N": 1.5}}, "--shape N: sizes are whole numbers above 0, not 1.5"),
        (("N", 4), {"shapes": {"x": (1 << 40, 4)}}, "elements"),
        ((-7, 4), {"shapes": {"x": (1, 4)}}, "input x: axis 0 is of size -7"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(dims, options, message):
    with pytest.raises(SpecError) as refused:
        read(model(RELU, {"x": dims}), **options)
    assert message in str(refused.value)


def branching(condition, *, dims=(4,), deep=1):
    """A model whose If has two branches with edges of one name; `condition` nodes make `c` of the input `n`.

    The first branch is an If in an If, `deep` of them.
    """
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    copied = helper.make_node("Identity", ["inner"], ["out"])
    first = [helper.make_node(op, ["x"], ["inner"]) for op in ("Relu", "Neg")]
    branches = [helper.make_graph([one, copied], one.op_type, [], [out]) for one in first]
    for level in range(deep - 1):
        choice = helper.make_node("If", ["c"], [f"out{level}"], then_branch=branches[0], else_branch=branches[1])
        onnx_model = helper.make_tensor_value_info(f"out{level}", TensorProto.FLOAT, None)
        branches[0] = helper.make_graph([choice], f"level{level}", [], [onnx_model])
    last = helper.make_node("If", ["c"], ["y"], "choice", then_branch=branches[0], else_branch=branches[1])
    onnx_model = model([*condition, last], {"x": dims}, {"sixteen": np.int64(16)})
    onnx_model.graph.input.append(helper.make_tensor_value_info("n", TensorProto.INT64, []))
    return parsed(onnx_model)


EQUAL = [node("Equal", "n sixteen", "c")]


@pytest.mark.parametrize(("number", "op"), [(16, "relu"), (8, "neg")])
def test_the_branch_that_a_constant_selects_is_read(number, op):
    graph = read(branching(EQUAL), fixed={"n": number})
    assert [n.op for n in graph.nodes] == [op]
    assert graph.inputs == ("x",)
    x = np.array([-1, 2, -3, 4], np.float32)
    assert (run(graph, {"x": x})["y"] == (np.maximum(x, 0) if op == "relu" else -x)).all()


def test_a_shape_selects_a_branch():
    condition = [node("Shape", "x", "s"), node("Gather", "s zero", "k"), node("Equal", "k sixteen", "c")]
    onnx_model = branching(condition, dims=("N",))
    onnx_model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0), "zero"))
    assert [n.op for n in read(onnx_model, shapes={"N": 16}).nodes] == ["relu"]
    assert [n.op for n in read(onnx_model, batch=3).nodes] == ["neg"]


def test_a_condition_of_the_run_names_the_input_to_fix():
    with pytest.raises(SpecError, match="choice: its condition depends on the input n; fix that, as in --fix n=VALUE"):
        read(branching(EQUAL))


def test_branches_in_branches_are_read_up_to_a_depth():
    assert [n.op for n in read(branching(EQUAL, deep=20), fixed={"n": 16}).nodes] == ["relu"]
    with pytest.raises(SpecError, match="nested more than 24 deep"):
        read(branching(EQUAL, deep=28), fixed={"n": 16})


def test_a_branch_may_not_hide_an_edge():
    onnx_model = branching(EQUAL)
    onnx_model.graph.node.insert(0, helper.make_node("Abs", ["x"], ["inner"]))
    with pytest.raises(SpecError, match="If choice: a branch makes inner, which exists already"):
        read(onnx_model, fixed={"n": 16})


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ({"m": 1}, "--fix m: no input of the file; inputs: x, n"),
        ({"n": "sixteen"}, "input n: 'sixteen' are not its numbers"),
        ({"n": 1.5}, "input n: 1.5 are no int64"),
        ({"n": [[16]]}, "input n has 0 axes; its fixed value has 2"),
    ],
)
def test_values_that_do_not_fit_are_refused(fixed, message):
    with pytest.raises(SpecError) as refused:
        read(branching(EQUAL), fixed=fixed)
    assert message in str(refused.value)


def test_one_number_fills_an_input():
    onnx_model = model([node("Add", "x s")], {"x": (1, 3), "s": (1, 3)})
    graph = read(onnx_model, fixed={"s": 2})
    assert (run(graph, {"x": np.zeros((1, 3), np.float32)})["y"] == 2).all()


def test_one_number_fills_an_input_of_open_sizes():
    onnx_model = model([node("Add", "x s")], {"x": ("N", 3), "s": ("N", "?")})
    graph = read(onnx_model, fixed={"s": 2}, shapes={"s": (2, 3)})
    assert graph.edges["x"].shape == (2, 3)
    assert (run(graph, {"x": np.zeros((2, 3), np.float32)})["y"] == 2).all()
    with pytest.raises(SpecError, match="input s: axis 1 is unknown; give --shape s=2xL with numbers"):
        read(onnx_model, fixed={"s": 2}, batch=2)


def test_a_fixed_array_settles_the_sizes_of_others():
    onnx_model = model([node("Add", "x s")], {"x": ("N", 3), "s": ("N", 3)})
    assert read(onnx_model, fixed={"s": np.ones((4, 3), np.float32)}).edges["x"].shape == (4, 3)


def test_a_fixed_array_needs_no_shape_in_the_file():
    onnx_model = model([node("Add", "x s", "y")], {"x": (4, 3), "s": (3,)}, {})
    onnx_model.graph.input[1].type.tensor_type.ClearField("shape")
    assert read(onnx_model, fixed={"s": np.ones(3, np.float32)}).inputs == ("x",)


def test_a_fixed_array_may_be_empty():
    onnx_model = model([node("ReduceSum", "x axes", "y")], {"x": (4, 3), "axes": (0,)}, {}, opset=13)
    onnx_model.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    assert read(onnx_model, fixed={"axes": np.zeros(0, np.int64)}).inputs == ("x",)
    with pytest.raises(SpecError, match="input axes has 1 axes; its fixed value has 2"):
        read(onnx_model, fixed={"axes": np.zeros((0, 1), np.int64)})


def test_a_graph_may_make_a_name_that_a_branch_before_it_has():
    onnx_model = branching(EQUAL)
    onnx_model.graph.node.append(helper.make_node("Abs", [onnx_model.graph.node[-1].output[0]], ["inner"]))
    onnx_model.graph.output[0].name = "inner"
    assert [n.op for n in read(onnx_model, fixed={"n": 16}).nodes] == ["relu", "abs"]


@pytest.mark.parametrize("number", [16, 8])
@pytest.mark.parametrize("deep", [0, 3])
def test_branches_are_inlined_for_other_runtimes(number, deep):
    onnx_model = fix_inputs(branching(EQUAL, deep=deep), {"n": number}, {}, None)
    inlined = inline_branches(onnx_model, {}, None)
    assert not any(one.op_type == "If" for one in inlined.graph.node)
    x = np.array([-1, 2, -3, 4], np.float32)
    want = run(read(onnx_model), {"x": x})["y"]
    (got,) = ReferenceEvaluator(inlined).run(None, {"x": x})
    assert (got == want).all()


def test_a_maximum_with_minus_infinity_is_the_number(rng):
    nodes = [node("Max", "x low", "a"), node("Min", "high a", "y")]
    onnx_model = model(nodes, {"x": (2, 3)}, {"low": np.float32(-np.inf), "high": np.full((2, 3), np.inf, np.float32)})
    assert not read(onnx_model, reference="exact").nodes
    onnx_model = model(nodes, {"x": (2, 3)}, {"low": np.float32(np.inf), "high": np.full((2, 3), np.inf, np.float32)})
    with pytest.raises(SpecError, match="holds infinity"):
        read(onnx_model, reference="exact")


@pytest.mark.parametrize("op", ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"])
@pytest.mark.parametrize(("dtype", "number"), [("int32", 257), ("int64", 2**24 + 1), ("int64", -(2**40)), ("int64", 5)])
def test_integers_are_compared_at_run_time(op, dtype, number):
    """Numbers next to the constant, and the ends of what an input may hold, which float32 does not hold."""
    nodes = [node(op, "x c", "b"), node("Cast", "b", to=TensorProto.FLOAT)]
    onnx_model = model(nodes, {"x": (7,)}, {"c": np.array(number, dtype)}, dtype=getattr(TensorProto, dtype.upper()))
    least, most = (-(2**31), 2**31 - 1) if dtype == "int32" else (-(2**53), 2**53)
    x = np.array([least, number - 1, number, number + 1, most, 0, 1], dtype)
    want = {
        "Equal": x == number,
        "Greater": x > number,
        "GreaterOrEqual": x >= number,
        "Less": x < number,
        "LessOrEqual": x <= number,
    }[op]
    assert (run(read(onnx_model), {"x": x})["y"] == want).all()


def test_two_integers_of_the_run_are_compared_in_float64():
    nodes = [node("Less", "x z", "b"), node("Cast", "b", to=TensorProto.FLOAT)]
    onnx_model = model(nodes, {"x": (3,), "z": (3,)}, dtype=TensorProto.INT32)
    ends = np.iinfo(np.int32)
    x, z = np.array([ends.min, ends.max - 1, 7], np.int32), np.array([ends.max, ends.max, 7], np.int32)
    assert run(read(onnx_model), {"x": x, "z": z})["y"].tolist() == [1, 1, 0]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(branching(EQUAL, dims=("N",)), path)
    return path


def test_the_commands_take_shapes_and_values(ended, fails, file, tmp_path):
    given = ["--shape", "x=4", "--fix", "n=16"]
    assert "relu" in ended(0, "inspect", str(file), *given)[0]
    out = tmp_path / "out"
    ended(0, "compile", str(file), *given, "--isa", "avx2", "-o", str(out))
    header = (out / "net.h").read_text().replace("\n *", "")
    assert "--shape x=4 --fix n=16" in " ".join(header.split())
    certificate = json.loads((out / "net.certificate.json").read_text())
    assert certificate["reading"] == {"batch": None, "codes": None, "fixed": {"n": 16}, "shapes": {"x": 4}}
    ended(0, "verify", str(out), "--model", str(file))
    ended(0, "check", str(file), *given, "--count", "2", "--isa", "avx2")
    for wrong in (["--shape", "x=4x"], ["--shape", "=4"], ["--shape", "x=0"], ["--fix", "n"], ["--fix", "n=1e"]):
        assert fails(2, "inspect", str(file), *wrong).count("\n") <= 1


def test_names_that_a_shell_would_read_are_in_no_command(file):
    onnx_model = onnx.load(file)
    for each in (onnx_model.graph.input[1], *(n for n in onnx_model.graph.node if "n" in n.input)):
        if isinstance(each, onnx.NodeProto):
            each.input[0] = "n */ ; rm"
        else:
            each.name = "n */ ; rm"
    net = bitsynth.compile(onnx_model, isa="avx2", batch=4, fixed={"n */ ; rm": 16})
    assert "rm" not in net.files("net")["net.h"]
