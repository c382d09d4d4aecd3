"""Models of floats for tests, written node by node."""

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper


class File:
    """Nodes of standard ONNX one after another; every edge but the first is called as its node's number says."""

    def __init__(self) -> None:
        self.nodes, self.constants = list[Any](), list[Any]()

    def constant(self, value: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value, np.float32), f"c{len(self.constants)}"))
        name: str = self.constants[-1].name
        return name

    def add(self, op: str, *inputs: Any, **attributes: Any) -> str:
        names = [i if isinstance(i, str) else self.constant(i) for i in inputs]
        self.nodes.append(helper.make_node(op, names, [f"n{len(self.nodes)}"], **attributes))
        name: str = self.nodes[-1].output[0]
        return name

    def model(self, shape: tuple[int, ...], *outputs: str) -> Any:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        results = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
        graph = helper.make_graph(self.nodes, "net", [x], results, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
