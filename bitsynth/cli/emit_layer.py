"""`bitsynth emit-layer`: a layer as plain C."""

from __future__ import annotations

from typing import Any

from bitsynth.cli import output
from bitsynth.cli.files import require_writable
from bitsynth.cli.options import (
    ActBits,
    ActEncoding,
    Dilation,
    Folder,
    ForCpu,
    Groups,
    ImageOption,
    IsaOrAuto,
    Json,
    LayerName,
    Layout,
    OutLayout,
    Padding,
    Solve,
    Stride,
    WBits,
    WeightEncoding,
    WeightsArgument,
    ZeroPoint,
)
from bitsynth.cli.parse import edges, numbers, size
from bitsynth.files import write_texts
from bitsynth.spec.matmul import Encoding

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
    isa: IsaOrAuto = "auto",
    cpu: ForCpu = "",
    stride: Stride = "1",
    padding: Padding = "0",
    dilation: Dilation = "1",
    groups: Groups = 1,
    layout: Layout = "NHWC",
    out_layout: OutLayout = "",
    image: ImageOption = "",
    solve: Solve = False,
    as_json: Json = False,
) -> None:
    """Write a convolution or dense layer as C11 that builds with any compiler and needs nothing else.

    Header, source with packed weights, kernel, runtime, a self-test against a plain convolution, an example and
    CMakeLists.txt: `cmake -B build && cmake --build build && ctest --test-dir build`.
    """
    from bitsynth.cli import weights as weights_file
    from bitsynth.layers import Conv2d, Dense

    weight, epilogue = weights_file.read(weights)
    window = {
        "stride": (numbers("--stride", stride, 1, 2), 1),
        "padding": (edges("--padding", padding), 0),
        "dilation": (numbers("--dilation", dilation, 1, 2), 1),
        "groups": (groups, 1),
    }
    options: dict[str, Any] = {
        **{option: value for option, (value, usual) in window.items() if value != usual},
        "act_encoding": act_encoding.value,
        "weight_encoding": weight_encoding.value,
        "zero_point": zero_point,
        "isa": isa,
        "cpu": cpu,
        "layout": layout,
        "out_layout": out_layout or None,
        "epilogue": epilogue,
        **({"image": size("--image", image)} if image else {}),
    }
    with output.progress("emit-layer") as say:
        options["solve"] = say if solve else False
        layer = (Dense if weight.ndim == 2 else Conv2d)(weight, act_bits, w_bits, **options)
    files = layer.files(name)
    require_writable(to, _ADVICE)
    paths = write_texts(to, files)
    if as_json:
        output.write_json({"name": name, "kernel": layer.kernel.name, "files": [str(p) for p in paths]})
        return
    output.write(
        layer.explain(), f"wrote     {output.count(len(paths), 'file')} in {to}: {name}.h, {name}.c and others"
    )
