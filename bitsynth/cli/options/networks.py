"""Options of networks: the file, what results are defined by, its inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bitsynth.cli.options.kernels import ENCODINGS
from bitsynth.spec.matmul import Encoding

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.", show_default=False)]
OnnxFile = Annotated[
    Path, typer.Option("-o", "--output", metavar="FILE", help="The ONNX file to write.", show_default=False)
]
WeightsFile = Annotated[
    bool, typer.Option("--weights-file", help="Weights as one binary file that the build takes in, not as C.")
]
AsPatterns = Annotated[bool, typer.Option("--patterns", help="As pre-quantized patterns of standard operators.")]
WithShifts = Annotated[bool, typer.Option("--shifts", help="Each factor as two Mul, by an integer and a power of two.")]
Batch = Annotated[
    int | None,
    typer.Option(
        "--batch", metavar="N", min=1, help="The first axis of inputs that leave it open.", show_default=False
    ),
]
Reference = Annotated[
    str | None,
    typer.Option(
        "--reference",
        metavar="NAME",
        help="What results are defined by: exact, onnxruntime or onnx.",
        show_default="by the operators of the file",
    ),
]
InputBits = Annotated[
    int | None,
    typer.Option(
        "--input-bits", metavar="N", help="Inputs without a quantizer are codes of so many bits.", show_default=False
    ),
]
InputScale = Annotated[float, typer.Option("--input-scale", metavar="X", help="What a step of those codes stands for.")]
InputEncoding = Annotated[
    Encoding, typer.Option("--input-encoding", metavar="ENCODING", help=f"What those codes are: {ENCODINGS}.")
]
InputFile = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="FILE",
        help="A .npz file with an array for each input, of one input or of several along the first axis; for a network "
        "of one input a .npy file too.",
        show_default="inputs at random",
    ),
]
InputCount = Annotated[int, typer.Option("--count", metavar="N", min=1, help="Inputs at random, without --data.")]
NetworkName = Annotated[
    str,
    typer.Option(
        "--name", metavar="NAME", help="What the network is called in C.", show_default="as the file is called"
    ),
]
BecomesOn = Annotated[
    str,
    typer.Option(
        "--isa",
        metavar="SET",
        help="Also say what each node becomes on this instruction set; auto is the best this processor has.",
        show_default=False,
    ),
]
OfModel = Annotated[
    Path | None,
    typer.Option("--model", metavar="ONNX", help="The file that a network must be compiled from.", show_default=False),
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse a network with a step of which nothing is claimed.")]
