"""ONNX models whose size is a parameter: families in which work could grow faster than the file does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from onnx import TensorProto

from support.onnx_files import QONNX, model, node

_GRID = MappingProxyType({"s": np.float32(0.25), "z": np.float32(0), "b": np.float32(2)})


def _quant(name: str, to: str, rounding: str = "ROUND") -> Any:
    options: dict[str, Any] = {"signed": 0, "narrow": 0, "rounding_mode": rounding}
    return node("Quant", f"{name} s z b", to, domain=QONNX, name=f"quantize_{to}", **options)


def _chain(op: str, inputs: str, count: int, **attributes: Any) -> list[Any]:
    """Nodes `op`, each reading the one before: `inputs` has {} for its name."""
    return [node(op, inputs.format(f"v{k}"), f"v{k + 1}", name=f"{op}_{k}", **attributes) for k in range(count)]


def _between_quantizers(nodes: list[Any], end: str, shape: tuple[int, ...] = (1, 4), **constants: Any) -> Any:
    """A model that quantizes its input to v0, has `nodes`, and quantizes `end`."""
    return model([_quant("x", "v0"), *nodes, _quant(end, "y")], {"x": shape}, {**_GRID, **constants})


def _undecided(nodes: list[Any], end: str) -> Any:
    """The same, rounded up: of numbers too small for float64 only fractions decide."""
    return model([_quant("x", "v0"), *nodes, _quant(end, "y", "CEIL")], {"x": (1, 4)}, _GRID)


def squares(count: int) -> Any:
    """v * v, over and over."""
    return _undecided(_chain("Mul", "{0} {0}", count), f"v{count}")


def halves(count: int) -> Any:
    """v * v + v * v, over and over."""
    nodes = []
    for k in range(count):
        nodes += [
            node("Mul", f"v{k} v{k}", f"m{k}", name=f"m{k}"),
            node("Add", f"m{k} m{k}", f"v{k + 1}", name=f"a{k}"),
        ]
    return _undecided(nodes, f"v{count}")


def doubles(count: int) -> Any:
    """v + v, over and over."""
    return _between_quantizers(_chain("Add", "{0} {0}", count), f"v{count}")


def real_doubles(count: int) -> Any:
    """v + v of floats that no quantizer reads."""
    return model([node("Identity", "x", "v0"), *_chain("Add", "{0} {0}", count)], {"x": (1, 4)}, outputs=f"v{count}")


def real_squares(count: int) -> Any:
    """v * v of floats that no quantizer reads."""
    return model([node("Identity", "x", "v0"), *_chain("Mul", "{0} {0}", count)], {"x": (1, 4)}, outputs=f"v{count}")


def diamonds(count: int) -> Any:
    """Relu(v) + Sigmoid(v), over and over."""
    nodes = []
    for k in range(count):
        nodes += [node("Relu", f"v{k}", f"a{k}", name=f"r{k}"), node("Sigmoid", f"v{k}", f"b{k}", name=f"s{k}")]
        nodes += [node("Add", f"a{k} b{k}", f"v{k + 1}", name=f"add{k}")]
    return _between_quantizers(nodes, f"v{count}")


def concats(count: int) -> Any:
    """Concat(v, v) and the half of it, over and over."""
    nodes = []
    for k in range(count):
        nodes += [node("Concat", f"v{k} v{k}", f"c{k}", name=f"c{k}", axis=1)]
        nodes += [node("Slice", f"c{k} zero four one", f"v{k + 1}", name=f"s{k}")]
    given: dict[str, Any] = {"zero": np.array([2]), "four": np.array([6]), "one": np.array([1])}
    return _between_quantizers(nodes, f"v{count}", **given)


def fan_out(count: int) -> Any:
    """So many readers of one edge, all in one Concat."""
    nodes = [node("Relu", "v0", f"r{k}", name=f"relu{k}") for k in range(count)]
    return _between_quantizers([*nodes, node("Concat", " ".join(f"r{k}" for k in range(count)), "c", axis=1)], "c")


def fan_out_quantized(count: int) -> Any:
    """So many different quantizers of one edge, all in one Concat."""
    nodes: list[Any] = []
    given: dict[str, Any] = {}
    for k in range(count):
        given[f"s{k}"] = np.float32(0.25 + k / 65536)
        nodes += [node("Quant", f"v0 s{k} z b", f"r{k}", domain=QONNX, name=f"q{k}", signed=0, narrow=0)]
    nodes += [node("Concat", " ".join(f"r{k}" for k in range(count)), "c", axis=1)]
    return _between_quantizers(nodes, "c", **given)


def fan_out_summed(count: int) -> Any:
    """So many products of one edge, summed pairwise."""
    given: dict[str, Any] = {
        f"w{k}": np.random.default_rng(k).integers(-1, 2, (4, 4)).astype(np.float32) for k in range(count)
    }
    nodes = [node("MatMul", f"v0 w{k}", f"r{k}", name=f"mm{k}") for k in range(count)]
    last = "r0"
    for k in range(1, count):
        nodes += [node("Add", f"{last} r{k}", f"t{k}", name=f"add{k}")]
        last = f"t{k}"
    return _between_quantizers(nodes, last, **given)


def residuals(count: int) -> Any:
    """A chain of quantizers with the one before last added."""
    nodes = [_quant("v0", "q0"), _quant("q0", "q1")]
    for k in range(2, count):
        nodes += [node("Add", f"q{k - 2} q{k - 1}", f"a{k}", name=f"add{k}"), _quant(f"a{k}", f"q{k}")]
    return _between_quantizers(nodes, f"q{max(count, 2) - 1}")


def convolutions(count: int) -> Any:
    """Convolutions with quantizers behind, and residuals every second one."""
    nodes: list[Any] = []
    given: dict[str, Any] = {}
    for k in range(count):
        given[f"w{k}"] = np.random.default_rng(k).integers(-1, 2, (8, 8, 1, 1)).astype(np.float32)
        nodes += [node("Conv", f"v{k} w{k}", f"c{k}", name=f"conv{k}")]
        end = f"c{k}"
        if k > 1 and k % 2:
            nodes += [node("Add", f"c{k} v{k - 1}", f"a{k}", name=f"add{k}")]
            end = f"a{k}"
        nodes += [_quant(end, f"v{k + 1}")]
    return _between_quantizers(nodes, f"v{count}", (1, 8, 2, 2), **given)


def identities(count: int) -> Any:
    return _between_quantizers(_chain("Identity", "{}", count), f"v{count}")


def clips(count: int) -> Any:
    return _between_quantizers(_chain("Clip", "{} low high", count), f"v{count}", low=np.float32(0), high=np.float32(9))


def relus(count: int) -> Any:
    return _between_quantizers(_chain("Relu", "{}", count), f"v{count}")


def sigmoids(count: int) -> Any:
    return _between_quantizers(_chain("Sigmoid", "{}", count), f"v{count}")


def real_sigmoids(count: int) -> Any:
    return model([node("Identity", "x", "v0"), *_chain("Sigmoid", "{}", count)], {"x": (1, 4)}, outputs=f"v{count}")


def scaled(count: int) -> Any:
    """Products with a constant that is no power of two: fractions grow by a few bits each."""
    return _between_quantizers(_chain("Mul", "{} f", count), f"v{count}", f=np.float32(0.999))


def added(count: int) -> Any:
    return _between_quantizers(_chain("Add", "{} f", count), f"v{count}", f=np.float32(0.001))


def reshapes(count: int) -> Any:
    shapes = "to_wide", "to_flat"
    nodes = [node("Reshape", f"v{k} {shapes[k % 2]}", f"v{k + 1}", name=f"r{k}") for k in range(count)]
    return _between_quantizers(nodes, f"v{count}", to_wide=np.array([1, 2, 2]), to_flat=np.array([1, 4]))


def transposes(count: int) -> Any:
    """Transposes of several axes."""
    nodes = [node("Transpose", f"v{k}", f"v{k + 1}", name=f"t{k}", perm=[0, 2, 3, 1]) for k in range(count)]
    return _between_quantizers(nodes, f"v{count}", (1, 2, 3, 4))


def moves(count: int) -> Any:
    """Reshapes and transposes by turns."""
    nodes = []
    for k in range(count):
        if k % 2:
            nodes += [node("Transpose", f"v{k}", f"v{k + 1}", name=f"t{k}", perm=[1, 0])]
        else:
            nodes += [node("Reshape", f"v{k} a", f"v{k + 1}", name=f"r{k}")]
    return _between_quantizers(nodes, f"v{count}", (2, 4), a=np.array([2, 4]))


def pools(count: int) -> Any:
    nodes = _chain("MaxPool", "{}", count, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    return _between_quantizers(nodes, f"v{count}", (1, 4, 4, 4))


def averages(count: int) -> Any:
    nodes = _chain("AveragePool", "{}", count, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    return _between_quantizers(nodes, f"v{count}", (1, 4, 4, 4))


def products(count: int) -> Any:
    """Products of the input without quantizers between them: sums grow past int32."""
    w = np.random.default_rng(0).integers(-1, 2, (4, 4)).astype(np.float32)
    return _between_quantizers(_chain("MatMul", "{} w", count), f"v{count}", w=w)


def real_products(count: int) -> Any:
    w = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    return model(
        [node("Identity", "x", "v0"), *_chain("MatMul", "{} w", count)], {"x": (1, 4)}, {"w": w}, outputs=f"v{count}"
    )


def dense(count: int) -> Any:
    """Products with quantizers behind."""
    nodes: list[Any] = []
    for k in range(count):
        nodes += [node("MatMul", f"v{k} w", f"m{k}", name=f"m{k}"), _quant(f"m{k}", f"v{k + 1}")]
    w = np.random.default_rng(0).integers(-1, 2, (4, 4)).astype(np.float32)
    return _between_quantizers(nodes, f"v{count}", w=w)


def initializers(count: int) -> Any:
    """Constants that nothing reads, and a long sum of others."""
    given: dict[str, Any] = {f"c{k}": np.float32(k / 1024) for k in range(count)}
    nodes = [node("Add", f"v{k} c{k}", f"v{k + 1}", name=f"a{k}") for k in range(count // 2)]
    return _between_quantizers(nodes, f"v{count // 2}", **given)


def constants(count: int) -> Any:
    """A long computation of constants."""
    nodes = [node("Add", f"k{k} one", f"k{k + 1}", name=f"a{k}") for k in range(count)]
    nodes += [node("Mul", f"v0 k{count}", "m")]
    return _between_quantizers(nodes, "m", k0=np.float32(1), one=np.float32(0.001))


def constant_squares(count: int) -> Any:
    """Squares of a constant: its fraction would double its digits each time."""
    nodes = [node("Mul", f"k{k} k{k}", f"k{k + 1}", name=f"a{k}") for k in range(count)]
    nodes += [node("Mul", f"v0 k{count}", "m")]
    return _between_quantizers(nodes, "m", k0=np.float32(0.999))


def outputs(count: int) -> Any:
    """An output a node."""
    nodes = [_quant("x", "v0"), *_chain("Relu", "{}", count)]
    return model(nodes, {"x": (1, 4)}, _GRID, outputs=" ".join(f"v{k + 1}" for k in range(count)))


def inputs(count: int) -> Any:
    """An input a node."""
    nodes = [node("Add", "x0 x1", "t1")]
    nodes += [node("Add", f"t{k - 1} x{k}", f"t{k}", name=f"a{k}") for k in range(2, count)]
    return model(nodes, {f"x{k}": (1, 4) for k in range(max(count, 2))}, outputs=f"t{max(count, 2) - 1}")


def splits(count: int) -> Any:
    """One Split into so many, and a Concat of the parts backwards."""
    parts = [f"p{k}" for k in range(count)]
    nodes = [node("Split", "v0 sizes", " ".join(parts), axis=1), node("Concat", " ".join(parts[::-1]), "c", axis=1)]
    return _between_quantizers(nodes, "c", (1, count), sizes=np.ones(count, np.int64))


def slices(count: int) -> Any:
    """So many slices of one edge, each quantized."""
    nodes: list[Any] = []
    given: dict[str, Any] = {}
    for k in range(count):
        given |= {f"a{k}": np.array([k]), f"b{k}": np.array([k + 1])}
        nodes += [node("Slice", f"v0 a{k} b{k} one", f"p{k}", name=f"s{k}")]
    nodes += [node("Concat", " ".join(f"p{k}" for k in range(count)), "c", axis=1)]
    return _between_quantizers(nodes, "c", (1, count), one=np.array([1]), **given)


def functions(count: int) -> Any:
    """Functions of the model that call each other in a row."""
    from onnx import helper

    file = model([node("f0", "x", "y", domain="own")], {"x": (1, 4)}, domains={"own": 1})
    for k in range(count):
        body = node(f"f{k + 1}", "a", "b", domain="own") if k + 1 < count else node("Relu", "a", "b")
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
        file.functions.append(helper.make_function("own", f"f{k}", ["a"], ["b"], [body], opsets))
    return file


def thresholds(count: int) -> Any:
    """Sums of comparisons of one edge."""
    given: dict[str, Any] = {f"t{k}": np.float32(k / 64) for k in range(count)}
    nodes, last = [], ""
    for k in range(count):
        nodes += [node("GreaterOrEqual", f"v0 t{k}", f"g{k}", name=f"g{k}")]
        nodes += [node("Cast", f"g{k}", f"f{k}", name=f"c{k}", to=TensorProto.FLOAT)]
        if k:
            nodes += [node("Add", f"{last} f{k}", f"u{k}", name=f"a{k}")]
        last = f"u{k}" if k else "f0"
    return _between_quantizers(nodes, last, **given)


def gathers(count: int) -> Any:
    nodes = _chain("Gather", "{} order", count, axis=1)
    return _between_quantizers(nodes, f"v{count}", order=np.array([1, 2, 3, 0]))


def pads(count: int) -> Any:
    nodes = []
    for k in range(count):
        nodes += [
            node("Pad", f"v{k} p", f"w{k}", name=f"p{k}"),
            node("Slice", f"w{k} a b c", f"v{k + 1}", name=f"s{k}"),
        ]
    given: dict[str, Any] = {"p": np.array([0, 1, 0, 0]), "a": np.array([0]), "b": np.array([4]), "c": np.array([1])}
    return _between_quantizers(nodes, f"v{count}", **given)


def gates(count: int) -> Any:
    """v * Sigmoid(v), over and over."""
    nodes = []
    for k in range(count):
        nodes += [node("Sigmoid", f"v{k}", f"g{k}", name=f"g{k}"), node("Mul", f"v{k} g{k}", f"v{k + 1}", name=f"m{k}")]
    return _between_quantizers(nodes, f"v{count}")


def divisions(count: int) -> Any:
    return _between_quantizers(_chain("Div", "{} f", count), f"v{count}", f=np.float32(1.001))


def norms(count: int) -> Any:
    nodes = _chain("BatchNormalization", "{} g h m d", count)
    given: dict[str, Any] = dict(
        zip("ghmd", np.random.default_rng(0).uniform(0.5, 1.5, (4, 4)).astype(np.float32), strict=True)
    )
    return _between_quantizers(nodes, f"v{count}", **given)


FAMILIES: Mapping[str, Callable[[int], Any]] = MappingProxyType(
    {
        each.__name__: each
        for each in (
            squares,
            halves,
            doubles,
            real_doubles,
            real_squares,
            diamonds,
            concats,
            fan_out,
            fan_out_quantized,
            fan_out_summed,
            residuals,
            convolutions,
            identities,
            clips,
            relus,
            sigmoids,
            real_sigmoids,
            scaled,
            added,
            reshapes,
            transposes,
            moves,
            pools,
            averages,
            products,
            real_products,
            dense,
            initializers,
            constants,
            constant_squares,
            outputs,
            inputs,
            splits,
            slices,
            functions,
            thresholds,
            gathers,
            pads,
            gates,
            divisions,
            norms,
        )
    }
)
