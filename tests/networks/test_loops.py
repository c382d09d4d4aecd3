"""Loops of a file: the body is read once for each iteration; a loop that no constant ends is refused."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from bitsynth.errors import SpecError
from bitsynth.graph import read, run
from bitsynth.graph.read.importer import inline_branches

X = np.array([[0.5, -1.25, 2.0, 0.75]], np.float32)


def value(name, kind=TensorProto.FLOAT, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


def constant(array, name):
    return numpy_helper.from_array(np.asarray(array), name)


def body(*, nodes=(), more="more", results=("half",)):
    """The body of (i, go, h): h becomes h * 0.5 + x + i; it gives h * 0.5 of each iteration, and goes on as `more`."""
    items = [
        helper.make_node("Mul", ["h", "factor"], ["half"]),
        helper.make_node("Cast", ["i"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["half", "x"], ["shifted"]),
        helper.make_node("Add", ["shifted", "number"], ["next"]),
        helper.make_node("Less", ["i", "last"], ["more"]),
        *nodes,
    ]
    inputs = [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("h", shape=[1, 4])]
    outputs = [value(more, TensorProto.BOOL, []), value("next", shape=[1, 4]), *(value(name) for name in results)]
    own = [constant(np.float32(0.5), "factor"), constant(np.int64(2), "last")]
    return helper.make_graph(items, "body", inputs, outputs, own)


def looping(trips=None, go=None, *, inner=None, outputs=("y", "all"), before=(), inputs=()):
    """A model of a Loop over x; `trips` and `go` are constants, or names of edges that `before` or `inputs` make."""
    initializers = [constant(np.zeros((1, 4), np.float32), "zero")]
    names = []
    for name, given, kind in (("trips", trips, np.int64), ("go_on", go, bool)):
        if given is None or isinstance(given, str):
            names.append(given or "")
        else:
            initializers.append(constant(kind(given), name))
            names.append(name)
    loop = helper.make_node("Loop", [*names, "zero"], list(outputs), "again", body=inner or body())
    graph = helper.make_graph(
        [*before, loop], "loops", [value("x", shape=[1, 4]), *inputs], [value(n) for n in outputs], initializers
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def results_of(model, **options):
    return run(read(model, reference="onnx", **options), {"x": X}).outputs()


def iterations(count, last=lambda half, k: half):
    """The last state and the results of `count` iterations of `body`, by the definition of Loop."""
    state, results = np.zeros((1, 4), np.float32), []
    for k in range(count):
        half = state * np.float32(0.5)
        results.append(last(half, k))
        state = half + X + np.float32(k)
    return state, np.stack(results)


@pytest.mark.parametrize(
    ("trips", "go", "count"), [(3, None, 3), (None, True, 3), (5, True, 3), (2, True, 2), (1, None, 1)]
)
def test_results_are_those_of_the_iterations(trips, go, count):
    for given, wanted in zip(results_of(looping(trips, go)), iterations(count), strict=True):
        np.testing.assert_array_equal(given, wanted)


def test_results_are_those_of_onnxruntime():
    runtime = pytest.importorskip("onnxruntime")
    model = looping(5, True)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for given, wanted in zip(results_of(model), session.run(None, {"x": X}), strict=True):
        np.testing.assert_array_equal(given, wanted)


def test_a_condition_that_is_computed_from_constants_ends_it():
    before = [helper.make_node("Less", ["low", "high"], ["c"])]
    model = looping(None, "c", before=before)
    model.graph.initializer.extend([constant(np.int64(1), "low"), constant(np.int64(2), "high")])
    assert results_of(model)[1].shape == (3, 1, 4)


def test_a_loop_without_an_iteration_gives_its_states():
    (state,) = results_of(looping(0, None, outputs=("y",)))
    np.testing.assert_array_equal(state, np.zeros((1, 4)))
    with pytest.raises(SpecError, match="Loop again: has no iteration, so its output all has no elements"):
        read(looping(3, False))


def test_an_if_in_a_loop_and_a_loop_in_a_loop():
    deeper = helper.make_graph(
        [helper.make_node("Neg", ["k"], ["minus"]), helper.make_node("Identity", ["again"], ["again_out"])],
        "deeper",
        [value("j", TensorProto.INT64, []), value("again", TensorProto.BOOL, []), value("k", shape=[1, 4])],
        [value("again_out", TensorProto.BOOL, []), value("minus", shape=[1, 4])],
    )
    branches = [
        helper.make_graph([helper.make_node(op, ["negated"], ["b"])], op, [], [value("b")]) for op in ("Abs", "Neg")
    ]
    nodes = [
        helper.make_node("Loop", ["last", "", "half"], ["negated"], body=deeper),
        helper.make_node("If", ["more"], ["chosen"], then_branch=branches[0], else_branch=branches[1]),
    ]
    model = looping(3, None, inner=body(nodes=nodes, results=("chosen",)))
    wanted = iterations(3, lambda half, k: np.abs(half) if k < 2 else -half)  # Two negations are none.
    np.testing.assert_array_equal(results_of(model)[1], wanted[1])


SWITCH = helper.make_node("ReduceMax", ["x"], ["c"], keepdims=0)
REFUSED = {
    "Loop again: its number of iterations depends on the input n; fix that, as in --fix n=VALUE": looping(
        "n", inputs=[value("n", TensorProto.INT64, [])]
    ),
    "Loop again: its condition is computed at run time; export the network without it": looping(
        None, "c", before=[SWITCH]
    ),
    "Loop again: more than 4,096 iterations of all loops; split": looping(None, True, inner=body(more="go")),
    "Loop again: its body has 3 inputs and 3 outputs, which do not fit 1 states and 3 outputs": looping(
        3, outputs=("y", "all", "more_of_it")
    ),
    "Loop again: a branch makes x, which exists already": looping(
        3, inner=body(nodes=[helper.make_node("Neg", ["h"], ["x"])])
    ),
    "Loop again: nothing makes the output nowhere of a branch": looping(3, inner=body(results=("nowhere",))),
    "Loop again: nothing makes its input missing": looping("missing"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_loops_that_are_refused(why):
    with pytest.raises(SpecError) as refusal:
        read(REFUSED[why])
    assert str(refusal.value).startswith(why)


def test_a_number_of_iterations_may_be_an_input_that_is_fixed():
    model = looping("n", inputs=[value("n", TensorProto.INT64, [])])
    assert results_of(model, fixed={"n": 2})[1].shape == (2, 1, 4)


def test_a_network_with_a_loop_is_not_quantized():
    with pytest.raises(SpecError, match="Loop again: a network with loops is compiled, not quantized"):
        inline_branches(looping(3), {}, None)
