"""Options of networks: the file, the reference that defines results, its inputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bitsynth.cli import output
from bitsynth.cli.options.kernels import ENCODINGS
from bitsynth.cli.options.output import output_path
from bitsynth.printable import show
from bitsynth.spec.matmul import Encoding

if TYPE_CHECKING:
    from bitsynth.graph.ir import Graph

ModelArgument = Annotated[
    Path, typer.Argument(metavar="MODEL", help="An ONNX or TensorFlow Lite file.", show_default=False)
]
OnnxFile = Annotated[
    Path,
    typer.Option(
        "-o", "--output", metavar="FILE", parser=output_path, help="The ONNX file to write.", show_default=False
    ),
]
WeightsFile = Annotated[
    bool, typer.Option("--weights-file", help="Write weights as one binary file that the build includes, instead of C.")
]
AsPatterns = Annotated[
    bool, typer.Option("--patterns", help="Required: write pre-quantized patterns, the only form so far.")
]
WithShifts = Annotated[
    bool, typer.Option("--shifts", help="Write each factor as two Mul, by an integer and a power of two.")
]
Batch = Annotated[
    int | None,
    typer.Option(
        "--batch",
        metavar="N",
        min=1,
        max=1 << 20,
        help="The batch, for inputs whose first axis the file leaves open.",
        show_default=False,
    ),
]
InputShapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=SIZES",
        help="The shape of an input with open sizes, as in x=1x3x224x224, or one open size by its name in the file, as "
        "in height=224; may be repeated.",
        show_default=False,
    ),
]
FixedInputs = Annotated[
    list[str] | None,
    typer.Option(
        "--fix",
        metavar="INPUT=VALUE",
        help="Make an input a constant, as in sr=16000; may be repeated.",
        show_default=False,
    ),
]
Reference = Annotated[
    str | None,
    typer.Option(
        "--reference",
        metavar="NAME",
        help="The reference that defines results: exact, onnxruntime, onnx or tflite.",
        show_default="chosen by the operators of the file",
    ),
]
InputBits = Annotated[
    int | None,
    typer.Option(
        "--input-bits",
        metavar="N",
        help="Inputs without a quantizer are codes with this many bits.",
        show_default=False,
    ),
]
InputScale = Annotated[float, typer.Option("--input-scale", metavar="X", help="The scale of those codes.")]
InputEncoding = Annotated[
    Encoding, typer.Option("--input-encoding", metavar="ENCODING", help=f"The encoding of those codes: {ENCODINGS}.")
]
InputFile = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="FILE",
        help="A .npz file with an array for each input, with one sample or several along the first axis; or a .npy "
        "file, if the network has one input.",
        show_default="random inputs",
    ),
]
InputCount = Annotated[
    int, typer.Option("--count", metavar="N", min=1, help="Number of random inputs, without --data.")
]
NetworkName = Annotated[
    str,
    typer.Option("--name", metavar="NAME", help="The name of the network in C.", show_default="the file's name"),
]
BecomesOn = Annotated[
    str,
    typer.Option(
        "--isa",
        metavar="SET",
        help="Also show what computes each node on this instruction set; auto is the best that this processor runs.",
        show_default=False,
    ),
]
OfModel = Annotated[
    Path | None,
    typer.Option("--model", metavar="ONNX", help="The ONNX file that the network must come from.", show_default=False),
]
Strict = Annotated[bool, typer.Option("--strict", help="Fail if nothing is claimed of a step.")]


def warn_of_fixed_batch(graph: Graph, batch: int | None) -> None:
    """Warn if the file has a batch of its own, so that `batch` changes nothing."""
    sizes = {name: graph.edges[name].shape[:1] for name in graph.inputs}
    if batch is None or (batch,) in sizes.values() or not sizes:
        return
    from bitsynth.graph.read.importer import open_batch_export

    name, size = next(iter(sizes.items()))
    fixed = f"a batch of {size[0]}" if size else "no batch"
    output.warning(
        f"--batch {batch} changes nothing: input {show(name)} has {fixed} in the file; "
        f"export it with an open one, {open_batch_export(name)}"
    )
