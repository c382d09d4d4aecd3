"""`bitsynth emit-layer`: write a convolution or dense layer as plain C."""

from __future__ import annotations

from typing import Any

from bitsynth.cli import output
from bitsynth.cli.files import require_writable
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
from bitsynth.cli.parse import parse_numbers, parse_padding, parse_size
from bitsynth.files import reserve_folder, write_texts
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
    from bitsynth.cli import weights as weights_file
    from bitsynth.layers import Conv2d, Dense, processors

    weight, epilogue = weights_file.read(weights)
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
