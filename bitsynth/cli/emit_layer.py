"""`bitsynth emit-layer`: a layer as plain C."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bitsynth.cli import output
from bitsynth.cli.files import require_writable
from bitsynth.cli.options import Json
from bitsynth.errors import SpecError
from bitsynth.files import write_texts
from bitsynth.spec.matmul import Encoding

_ADVICE = "choose another folder with -o"

_Weights = Annotated[
    Path,
    typer.Argument(
        metavar="WEIGHTS",
        help="A .npy file of operand values, (OC, IC / groups, KH, KW) or, for a dense layer, (out, in); or a .npz "
        "file with such an array `weight`, and an epilogue: scale and bias; thresholds (OC, levels); or multiplier, "
        "shift and bits.",
        show_default=False,
    ),
]
_ActBits = Annotated[int, typer.Option("--act-bits", help="Bits of an activation, 1 to 8.")]
_WBits = Annotated[int, typer.Option("--w-bits", help="Bits of a weight, 1 to 8.")]
_Name = Annotated[str, typer.Option("--name", help="What the layer is called in C.")]
_To = Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Where the files go.")]
_ActEncoding = Annotated[Encoding, typer.Option("--act-encoding", help="What activation codes stand for.")]
_WgtEncoding = Annotated[Encoding, typer.Option("--weight-encoding", help="What weight codes stand for.")]
_Isa = Annotated[str, typer.Option("--isa", help="Instruction set; auto is the best this processor has.")]
_Stride = Annotated[str, typer.Option("--stride", metavar="N[,N]", help="Pixels, or down,right.")]
_Padding = Annotated[
    str, typer.Option("--padding", metavar="N[,N[,N,N]]", help="Pixels, or height,width, or top,left,bottom,right.")
]
_Dilation = Annotated[str, typer.Option("--dilation", metavar="N[,N]", help="Pixels, or down,right.")]
_Groups = Annotated[int, typer.Option("--groups", help="Groups of channels.")]
_Layout = Annotated[str, typer.Option("--layout", help="How activations lie: NHWC, NCHW or packed.")]
_OutLayout = Annotated[
    str, typer.Option("--out-layout", help="How results lie: NHWC, NCHW or packed.", show_default="as activations")
]
_Image = Annotated[
    str, typer.Option("--image", metavar="H,W", help="The size the schedule is chosen for.", show_default="28,28")
]


def emit_layer(
    weights: _Weights,
    act_bits: _ActBits,
    w_bits: _WBits,
    name: _Name,
    to: _To,
    act_encoding: _ActEncoding = Encoding.UNSIGNED,
    weight_encoding: _WgtEncoding = Encoding.BIPOLAR,
    isa: _Isa = "auto",
    stride: _Stride = "1",
    padding: _Padding = "0",
    dilation: _Dilation = "1",
    groups: _Groups = 1,
    layout: _Layout = "NHWC",
    out_layout: _OutLayout = "",
    image: _Image = "",
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
        "stride": (_numbers("--stride", stride, 1, 2), 1),
        "padding": (_numbers("--padding", padding, 1, 2, 4), 0),
        "dilation": (_numbers("--dilation", dilation, 1, 2), 1),
        "groups": (groups, 1),
    }
    options: dict[str, Any] = {
        **{option: value for option, (value, usual) in window.items() if value != usual},
        "act_encoding": act_encoding.value,
        "weight_encoding": weight_encoding.value,
        "isa": isa,
        "layout": layout,
        "out_layout": out_layout or None,
        "epilogue": epilogue,
        **({"image": _numbers("--image", image, 2)} if image else {}),
    }
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


def _numbers(option: str, text: str, *counts: int) -> Any:
    """The number in `2`, or the numbers in `2,1`; SpecError unless there are as many as may be."""
    parts = text.split(",")
    if len(parts) not in counts or not all(p.isascii() and p.isdigit() for p in parts):
        raise SpecError(f"{option}: want {' or '.join(map(str, counts))} whole numbers with commas, not {text!r}")
    return int(text) if len(parts) == 1 else tuple(map(int, parts))
