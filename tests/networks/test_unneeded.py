"""What no output is made of is not read: files are cut, and name results that nothing takes."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_files import model, node, tensor

from bitsynth.errors import SpecError
from bitsynth.graph import read, run

X = {"x": (1, 2, 4, 4)}
NODES = {
    "a node that is not known": [node("Relu", "x"), node("Frob", "y", "z")],
    "nodes that read each other": [node("Relu", "x"), node("Relu", "b", "a"), node("Neg", "a", "b")],
    "a node that lacks an input": [node("Relu", "x"), node("Neg", "nothing", "z")],
    "a mask": [node("Dropout", "x", "y mask")],
    "indices": [node("MaxPool", "x", "y at", kernel_shape=[1, 1])],
}
READ = {
    "Frob the_Frob: no operator": NODES["a node that is not known"],
    "in a cycle": [node("Relu", "b", "a"), node("Neg", "a", "b"), node("Relu", "x"), node("Neg", "a", "z")],
    "nothing makes its input": NODES["a node that lacks an input"],
    "its mask is used": [*NODES["a mask"], node("Not", "mask", "z")],
    "its indices are used": [*NODES["indices"], node("Neg", "at", "z")],
}


@pytest.mark.parametrize("nodes", NODES.values(), ids=NODES)
def test_what_nothing_reads_is_not_read(nodes):
    graph = read(model(nodes, X))
    x = np.linspace(0, 3, 32, dtype=np.float32).reshape(X["x"])
    assert np.array_equal(run(graph, {"x": x}).floats(graph.outputs[0]), x)


@pytest.mark.parametrize("why", READ)
def test_the_same_is_refused_where_an_output_needs_it(why):
    with pytest.raises(SpecError, match=why):
        read(model(READ[why], X, outputs="y z"))


def test_initializers_that_nothing_reads_may_be_texts():
    made = model([node("Relu", "x")], X)
    made.graph.initializer.append(tensor(np.array(["cat", "dog"], object), "labels"))
    assert not read(made).constants
    made.graph.output.append(helper.make_tensor_value_info("labels", TensorProto.STRING, [2]))
    with pytest.raises(SpecError, match="labels"):
        read(made)
