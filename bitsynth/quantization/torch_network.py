"""ONNX networks in PyTorch, for gradients: a table of operators, with quantizers of QONNX among them.

A network is run node by node, for a sample of the file's own shape; `torch.vmap` runs many samples together. Constants
may be replaced in each run, by parameters that are trained. Quantizers compute what the file states. Their gradients
are LSQ's (Esser et al., 2020, section 2): rounding counts as the identity, limits count as limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from bitsynth.errors import SpecError, ToolError
from bitsynth.quantization.quantized_model import DOMAIN

TorchTensor: TypeAlias = Any
"""A tensor of PyTorch, an optional package without types here."""
_Function = Callable[..., TorchTensor]
"""Computes a node's result from its inputs, in order; None stands for one that is left out."""
INSTALL = "pip install 'bitsynth[quantize,train]'"


def require_torch() -> Any:
    """Import and return the package torch; ToolError if it is not installed."""
    try:
        import torch
    except ImportError as error:
        raise ToolError(f"networks are fine-tuned with the package torch: {error}; install it with {INSTALL}") from None
    return torch


@dataclass(frozen=True)
class _Site:
    """A node of the file.

    Args:
        node: The node.
        attributes: Its attributes.
        arrays: Its constant inputs; None for inputs that are computed or left out.
    """

    node: Any
    attributes: Mapping[str, Any]
    arrays: Sequence[NDArray[Any] | None]

    def whole(self, name: str, default: int) -> int:
        """Return an attribute that is a whole number."""
        return int(self.attributes.get(name, default))

    def array(self, place: int) -> NDArray[Any] | None:
        """Return a constant input; None if it is left out."""
        if place >= len(self.node.input) or not self.node.input[place]:
            return None
        if self.arrays[place] is None:
            raise self.refusal(f"its input {self.node.input[place]} is not constant")
        return self.arrays[place]

    def whole_numbers(self, place: int, attribute: str) -> list[int] | None:
        """Return whole numbers that old versions have as an attribute, and new ones as an input."""
        if attribute in self.attributes:
            return [int(n) for n in self.attributes[attribute]]
        array = self.array(place)
        return None if array is None else [int(n) for n in array.reshape(-1)]

    def refusal(self, why: str) -> SpecError:
        """Return the error that fine-tuning does not have this node."""
        return SpecError(
            f"fine-tuning does not have the node {self.node.name} ({self.node.op_type}): {why}; leave out --finetune"
        )


class TorchNetwork:
    """A network that PyTorch runs.

    Args:
        model: The ONNX model, with quantizers of QONNX.
        double: Whether numbers are float64; else float32.

    Raises:
        SpecError: The table lacks a node's operator or form.
    """

    def __init__(self, model: Any, *, double: bool = False) -> None:
        torch = require_torch()
        self._type = torch.float64 if double else torch.float32
        arrays = {x.name: numpy_helper.to_array(x) for x in model.graph.initializer}
        self.constants: dict[str, TorchTensor] = {name: self.tensor(array) for name, array in arrays.items()}
        self._steps: list[tuple[list[str], str, _Function]] = []
        for node in model.graph.node:
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            site = _Site(node, attributes, [arrays.get(name) for name in node.input])
            make = _TABLE.get(node.op_type) if node.domain in ("", "ai.onnx", DOMAIN) else None
            if make is None:
                raise site.refusal("its operator is not in the table of operators with gradients")
            if len([name for name in node.output if name]) > 1:
                raise site.refusal("it has several results")
            self._steps.append((list(node.input), node.output[0], make(site)))

    def tensor(self, array: NDArray[Any]) -> TorchTensor:
        """Return an array as a tensor; floats have the network's type."""
        tensor = require_torch().from_numpy(np.array(array))
        return tensor.to(self._type) if tensor.is_floating_point() else tensor

    def run(
        self,
        inputs: Mapping[str, TorchTensor],
        edges: Sequence[str],
        constants: Mapping[str, TorchTensor] | None = None,
    ) -> tuple[TorchTensor, ...]:
        """Return edges for many samples, along the first axis of each input; some constants may be replaced."""
        names, fixed = list(inputs), {**self.constants, **(constants or {})}

        def run_one(*sample: TorchTensor) -> tuple[TorchTensor, ...]:
            values = {**fixed, **dict(zip(names, sample, strict=True))}
            for sources, result, function in self._steps:
                values[result] = function(*(values[name] if name else None for name in sources))
            return tuple(values[name] for name in edges)

        results: tuple[TorchTensor, ...] = require_torch().vmap(run_one)(*inputs.values())
        return results


def _whole_part(x: TorchTensor) -> TorchTensor:
    """Return the nearest whole numbers, ties to even, with the gradient of the identity."""
    return x + (x.round() - x).detach()


def odd_codes(x: TorchTensor, scale: TorchTensor) -> TorchTensor:
    """Return numbers rounded to odd multiples of a scale, with the gradients of LSQ.

    A quantizer of the file, whose codes are all whole numbers, does not change them.
    """
    steps = x / scale
    return (steps + (2 * (steps / 2).floor() + 1 - steps).detach()) * scale


def _quant(site: _Site) -> _Function:
    zero, bits = (float(np.asarray(site.array(place)).reshape(())) for place in (2, 3))
    signed, narrow = site.whole("signed", 1), site.whole("narrow", 0)
    if site.attributes.get("rounding_mode", b"ROUND") != b"ROUND":
        raise site.refusal("its rounding mode is not ROUND")
    low, high = (-(2 ** (bits - 1)) + narrow if signed else 0.0), 2 ** (bits - signed) - 1

    def quantize(x: TorchTensor, scale: TorchTensor, *_: TorchTensor) -> TorchTensor:
        return (_whole_part((x / scale + zero).clamp(low, high)) - zero) * scale

    return quantize


def _bipolar_quant(site: _Site) -> _Function:
    def quantize(x: TorchTensor, scale: TorchTensor) -> TorchTensor:
        limited = (x / scale).clamp(-1, 1)
        sign = (x >= 0).to(x.dtype) * 2 - 1
        return (limited + (sign - limited).detach()) * scale

    return quantize


def _begin_and_end(site: _Site, sizes: Sequence[int], kernel: Sequence[int]) -> list[int]:
    """Return the padding of the last axes in the order of torch: the last axis first, begin and end."""
    count = len(kernel)
    steps, spread = (list(site.attributes.get(name, [1] * count)) for name in ("strides", "dilations"))
    auto = site.attributes.get("auto_pad", b"NOTSET")
    pads = list(site.attributes.get("pads", [0] * 2 * count))
    ends = list(zip(pads[:count], pads[count:], strict=True))
    if auto in (b"SAME_UPPER", b"SAME_LOWER"):
        for k, size in enumerate(sizes):
            covered = (-(-size // steps[k]) - 1) * steps[k] + (kernel[k] - 1) * spread[k] + 1
            whole = max(0, covered - size)
            ends[k] = (whole // 2, whole - whole // 2) if auto == b"SAME_UPPER" else (whole - whole // 2, whole // 2)
    return [n for end in reversed(ends) for n in end]


def _conv(site: _Site) -> _Function:
    functional = require_torch().nn.functional
    convolutions = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}

    def convolve(x: TorchTensor, w: TorchTensor, b: TorchTensor | None = None) -> TorchTensor:
        kernel = w.shape[2:]
        padded = functional.pad(x, _begin_and_end(site, x.shape[2:], kernel))
        steps, spread = (site.attributes.get(name, [1] * len(kernel)) for name in ("strides", "dilations"))
        return convolutions[len(kernel)](padded, w, b, steps, 0, spread, site.whole("group", 1))

    return convolve


def _gemm(site: _Site) -> _Function:
    alpha, beta = (float(site.attributes.get(name, 1.0)) for name in ("alpha", "beta"))

    def multiply(a: TorchTensor, b: TorchTensor, c: TorchTensor | None = None) -> TorchTensor:
        product = (a.mT if site.whole("transA", 0) else a) @ (b.mT if site.whole("transB", 0) else b)
        product = product if alpha == 1 else product * alpha
        return product if c is None else product + (c if beta == 1 else c * beta)

    return multiply


def _pool(site: _Site) -> _Function:
    """Return the function of MaxPool or AveragePool."""
    functional = require_torch().nn.functional
    kernel, is_mean = list(site.attributes["kernel_shape"]), site.node.op_type == "AveragePool"
    steps, spread = (list(site.attributes.get(name, [1] * len(kernel))) for name in ("strides", "dilations"))
    kind = f"{'avg' if is_mean else 'max'}_pool{len(kernel)}d"
    if site.whole("ceil_mode", 0) or (is_mean and any(n != 1 for n in spread)) or not hasattr(functional, kind):
        raise site.refusal("its windows have another form")

    def pool(x: TorchTensor) -> TorchTensor:
        ends = _begin_and_end(site, x.shape[2:], kernel)
        padded = functional.pad(x, ends, value=0.0 if is_mean else -math.inf)
        if not is_mean:
            return getattr(functional, kind)(padded, kernel, steps, 0, spread)
        means = getattr(functional, kind)(padded, kernel, steps)
        if not any(ends) or site.whole("count_include_pad", 0):
            return means
        inside = functional.pad(x.detach() * 0 + 1, ends)
        return means / getattr(functional, kind)(inside, kernel, steps)

    return pool


def _clip(site: _Site) -> _Function:
    ends = [site.attributes.get("min"), site.attributes.get("max")]
    for k in (0, 1):
        if (array := site.array(k + 1)) is not None:
            ends[k] = float(array.reshape(()))
    return lambda x, *_: x.clamp(*ends)


def _reshape(site: _Site) -> _Function:
    sizes = site.whole_numbers(1, "shape") or []

    def reshape(x: TorchTensor, *_: TorchTensor) -> TorchTensor:
        copied = not site.whole("allowzero", 0)
        return x.reshape([x.shape[k] if n == 0 and copied else n for k, n in enumerate(sizes)])

    return reshape


def _flatten(site: _Site) -> _Function:
    axis = site.whole("axis", 1)
    return lambda x: x.reshape(math.prod(x.shape[:axis]), -1)


def _squeeze(site: _Site) -> _Function:
    axes = site.whole_numbers(1, "axes")
    return lambda x, *_: x.squeeze() if axes is None else x.squeeze(tuple(axes))


def _unsqueeze(site: _Site) -> _Function:
    axes = site.whole_numbers(1, "axes") or []

    def unsqueeze(x: TorchTensor, *_: TorchTensor) -> TorchTensor:
        for axis in sorted(axis % (x.ndim + len(axes)) for axis in axes):
            x = x.unsqueeze(axis)
        return x

    return unsqueeze


def _transpose(site: _Site) -> _Function:
    axes = site.attributes.get("perm")
    return lambda x: x.permute(*(axes or reversed(range(x.ndim))))


def _slice(site: _Site) -> _Function:
    starts, ends = (site.whole_numbers(k, name) or [] for k, name in ((1, "starts"), (2, "ends")))
    axes = site.whole_numbers(3, "axes") or list(range(len(starts)))
    steps = site.whole_numbers(4, "steps") or [1] * len(starts)
    if any(step < 1 for step in steps):
        raise site.refusal("it has steps below 1")

    def cut(x: TorchTensor, *_: TorchTensor) -> TorchTensor:
        places = [slice(None)] * x.ndim
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            places[axis] = slice(start, end, step)
        return x[tuple(places)]

    return cut


def _pad(site: _Site) -> _Function:
    functional = require_torch().nn.functional
    pads, value = site.whole_numbers(1, "pads") or [], site.array(2)
    if site.attributes.get("mode", b"constant") != b"constant" or site.array(3) is not None or min(pads, default=0) < 0:
        raise site.refusal("it pads with other than a constant, or some axes only")
    fill = 0.0 if value is None else float(value.reshape(()))
    half = len(pads) // 2
    ends = [n for k in reversed(range(half)) for n in (pads[k], pads[half + k])]
    return lambda x, *_: functional.pad(x, ends, value=fill)


def _batch_norm(site: _Site) -> _Function:
    epsilon = float(site.attributes.get("epsilon", 1e-5))

    def normalize(
        x: TorchTensor, gain: TorchTensor, shift: TorchTensor, mean: TorchTensor, var: TorchTensor
    ) -> TorchTensor:
        gain, shift, mean, var = (t.reshape(-1, *[1] * (x.ndim - 2)) for t in (gain, shift, mean, var))
        return (x - mean) / (var + epsilon).sqrt() * gain + shift

    return normalize


def _reduce_mean(site: _Site) -> _Function:
    axes, keep = site.whole_numbers(1, "axes"), bool(site.whole("keepdims", 1))
    return lambda x, *_: x.mean(tuple(range(x.ndim)) if axes is None else tuple(axes), keepdim=keep)


def _softmax(site: _Site) -> _Function:
    axis = site.whole("axis", -1)
    return lambda x: x.log_softmax(axis) if site.node.op_type == "LogSoftmax" else x.softmax(axis)


def _elementwise(function: _Function) -> Callable[[_Site], _Function]:
    return lambda site: function


def _leaky(site: _Site) -> _Function:
    slope = float(site.attributes.get("alpha", 0.01))
    return lambda x: require_torch().nn.functional.leaky_relu(x, slope)


def _concat(site: _Site) -> _Function:
    return lambda *parts: require_torch().cat(parts, site.whole("axis", 0))


_TABLE: dict[str, Callable[[_Site], _Function]] = {
    "Quant": _quant,
    "BipolarQuant": _bipolar_quant,
    "Conv": _conv,
    "Gemm": _gemm,
    "MatMul": _elementwise(lambda a, b: a @ b),
    "Add": _elementwise(lambda a, b: a + b),
    "Sub": _elementwise(lambda a, b: a - b),
    "Mul": _elementwise(lambda a, b: a * b),
    "Div": _elementwise(lambda a, b: a / b),
    "Neg": _elementwise(lambda x: -x),
    "Abs": _elementwise(lambda x: x.abs()),
    "Sqrt": _elementwise(lambda x: x.sqrt()),
    "Exp": _elementwise(lambda x: x.exp()),
    "Relu": _elementwise(lambda x: x.relu()),
    "LeakyRelu": _leaky,
    "PRelu": _elementwise(lambda x, slope: x.clamp(min=0) + x.clamp(max=0) * slope),
    "Clip": _clip,
    "Sigmoid": _elementwise(lambda x: x.sigmoid()),
    "HardSwish": _elementwise(lambda x: x * (x / 6 + 0.5).clamp(0, 1)),
    "Tanh": _elementwise(lambda x: x.tanh()),
    "Erf": _elementwise(lambda x: x.erf()),
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "BatchNormalization": _batch_norm,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "GlobalAveragePool": _elementwise(lambda x: x.mean(tuple(range(2, x.ndim)), keepdim=True)),
    "GlobalMaxPool": _elementwise(lambda x: x.amax(tuple(range(2, x.ndim)), keepdim=True)),
    "ReduceMean": _reduce_mean,
    "Identity": _elementwise(lambda x: x),
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Concat": _concat,
    "Slice": _slice,
    "Pad": _pad,
}
