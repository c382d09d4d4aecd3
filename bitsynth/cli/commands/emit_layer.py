"""`bitsynth emit-layer`: write a convolution or dense layer as plain C.

Weight and epilogue of the layer are read from a file of numpy arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitsynth.cli import output
from bitsynth.cli.options.instruction_sets import ForCpus, IsaOrAuto
from bitsynth.cli.options.kernels import ActBits, ActEncoding, Solve, WBits, WeightEncoding
from bitsynth.cli.options.layers import (
    Dilation,
    Groups,
    ImageOption,
    LayerName,
    LayoutOption,
    OutLayout,
    Padding,
    Stride,
    WeightsArgument,
    WeightZeroPoint,
    ZeroPoint,
)
from bitsynth.cli.options.output import Folder, Json
from bitsynth.cli.output import require_writable
from bitsynth.cli.parse import parse_numbers, parse_padding, parse_size
from bitsynth.errors import SpecError
from bitsynth.files import reserve_folder, write_texts
from bitsynth.layers.array_files import read_arrays
from bitsynth.layers.epilogues import Epilogue, Requantize, Scale, Thresholds
from bitsynth.layers.epilogues.residual import Residual
from bitsynth.spec.matmul import Encoding

WEIGHT = "weight"
_RESIDUAL = "residual_scale", "residual_type", "residual_zero_point"
_EPILOGUES = ({"scale", "bias"}, {"scale"}, {"thresholds"}, {"multiplier", "shift", "bits"})


def read_layer_file(path: Path) -> tuple[NDArray[Any], Epilogue | None]:
    """Return the weight in a .npy file, or `weight` and epilogue arrays in a .npz file; SpecError for other files."""
    arrays = read_arrays(path, WEIGHT)
    if WEIGHT not in arrays:
        raise SpecError(f"{path} has no array {WEIGHT!r}, but {', '.join(arrays) or 'none at all'}")
    return arrays[WEIGHT], _epilogue(path, {name: a for name, a in arrays.items() if name != WEIGHT})


def _epilogue(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Epilogue | None:
    """Return the epilogue that the arrays other than the weight describe; None if there are none."""
    if not arrays:
        return None
    if set(arrays) - set(_RESIDUAL) not in _EPILOGUES:
        known = "scale and bias; thresholds; or multiplier, shift and bits; and residual_scale with its type"
        raise SpecError(f"{path} has {', '.join(sorted(arrays))} besides the weight; an epilogue is {known}")
    residual = _residual(path, arrays)
    if "thresholds" in arrays:
        return Thresholds(arrays["thresholds"], residual=residual)
    if "scale" in arrays:
        return Scale(arrays["scale"], arrays.get("bias", 0.0), residual)
    shift, bits = (_number(path, name, arrays[name]) for name in ("shift", "bits"))
    return Requantize(arrays["multiplier"], shift, bits, residual=residual)


def _residual(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Residual | None:
    """Return the residual that the arrays describe; None if there are none."""
    scale, kind, zero = _RESIDUAL
    if scale not in arrays:
        if unfit := [name for name in (kind, zero) if name in arrays]:
            raise SpecError(f"{path} has {', '.join(unfit)}, but no {scale}")
        return None
    names = arrays.get(kind, np.array("uint8"))
    if names.size != 1 or names.dtype.kind != "U":
        raise SpecError(f"{path}: {kind} must be one name of a type, not {names.dtype} {names.shape}")
    return Residual(str(names.reshape(-1)[0]), arrays[scale], _number(path, zero, arrays.get(zero, np.array(0))))


def _number(path: Path, name: str, array: NDArray[Any]) -> int:
    if array.size != 1 or array.dtype.kind not in "iu":
        raise SpecError(f"{path}: {name} must be one whole number, not {array.dtype} {array.shape}")
    return int(array.reshape(-1)[0])


_ADVICE = "choose another folder with -o"


def emit_layer(
    weights: WeightsArgument,
    act_bits: ActBits,
    w_bits: WBits,
    name: LayerName,
    to: Folder,
    act_encoding: ActEncoding = Encoding.UNSIGNED,
    weight_encoding: WeightEncoding = Encoding.BIPOLAR,
    zero_point: ZeroPoint = 0,
    weight_zero_point: WeightZeroPoint = 0,
    isa: IsaOrAuto = "auto",
    cpu: ForCpus = "",
    stride: Stride = "1",
    padding: Padding = "0",
    dilation: Dilation = "1",
    groups: Groups = 1,
    layout: LayoutOption = "NHWC",
    out_layout: OutLayout = "",
    image: ImageOption = "",
    solve: Solve = False,
    as_json: Json = False,
) -> None:
    """Write a convolution or dense layer as a C library.

    It is C11 that builds with any compiler and needs nothing else: header, source with packed weights, kernel,
    runtime, a self-test against a plain convolution, an example and CMakeLists.txt. Build and test it with
    `cmake -B build && cmake --build build && ctest --test-dir build`.

    With several processors, as in `--cpu a76,a72,a53`, the library holds the layer for each, and chooses when it runs.
    """
    from bitsynth.layers import Conv2d, Dense, processors

    weight, epilogue = read_layer_file(weights)
    window = {
        "stride": (parse_numbers("--stride", stride, 1, 2), 1),
        "padding": (parse_padding("--padding", padding), 0),
        "dilation": (parse_numbers("--dilation", dilation, 1, 2), 1),
        "groups": (groups, 1),
    }
    options: dict[str, Any] = {
        **{option: value for option, (value, usual) in window.items() if value != usual},
        "act_encoding": act_encoding.value,
        "weight_encoding": weight_encoding.value,
        "zero_point": zero_point,
        "weight_zero_point": weight_zero_point,
        "layout": layout,
        "out_layout": out_layout or None,
        "epilogue": epilogue,
        **({"image": parse_size("--image", image)} if image else {}),
    }
    kind = Dense if weight.ndim == 2 else Conv2d
    with reserve_folder(to, _ADVICE), output.progress("emit-layer") as say:
        options["solve"] = say if solve else False

        def make(isa: str, cpu: str) -> Conv2d:
            return kind(weight, act_bits, w_bits, isa=isa, cpu=cpu, **options)

        cpus = cpu.split(",")
        layers = processors.layers(make, isa, cpus) if len(cpus) > 1 else {cpu: make(isa, cpu)}
        files = processors.files(name, layers) if len(layers) > 1 else layers[cpu].files(name)
        require_writable(to, _ADVICE)
        paths = write_texts(to, files)
    if as_json:
        kernels = {each: layer.kernel.name for each, layer in layers.items()}
        facts = {"kernels": kernels} if len(layers) > 1 else {"kernel": kernels[cpu]}
        output.write_json({"name": name, **facts, "files": [str(p) for p in paths]})
        return
    wrote = f"wrote     {output.count(len(paths), 'file')} in {to}: {name}.h, {name}.c and others"
    output.write(*(layer.explain() for layer in layers.values()), wrote)
