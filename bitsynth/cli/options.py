"""Every argument and option of the commands, once: its name, its values, its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bitsynth.spec.matmul import Encoding
from bitsynth.spec.options import METHODS, MOST_THREADS, SKETCHES

_LAYER = "The layer"
_ENCODINGS = ", ".join(e.value for e in Encoding)
_MOST_CHANNELS = 1 << 16

# What is asked about.
KernelArgument = Annotated[
    str, typer.Argument(help="A kernel's name, as `bitsynth list` prints it.", show_default=False)
]
GlueArgument = Annotated[
    str,
    typer.Argument(
        metavar="LAYER",
        help="A layer of glue as in Python, such as 'MaxPool2d(64, 2, 2)'.",
        show_default=False,
    ),
]
Verified = Annotated[
    str,
    typer.Argument(
        metavar="NAME|FOLDER",
        help="A kernel's name, as `bitsynth list` prints it, or a folder of a compiled network.",
        show_default=False,
    ),
]
SetArgument = Annotated[str, typer.Argument(metavar="SET", help="An instruction set.", show_default=False)]
SetOrMnemonic = Annotated[
    str, typer.Argument(metavar="SET|MNEMONIC", help="An instruction set, or a mnemonic of any.", show_default=False)
]
InstructionArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", help="Only this instruction or form of the set.", show_default=False)
]
WeightsArgument = Annotated[
    Path,
    typer.Argument(
        metavar="WEIGHTS",
        help="A .npy file of operand values, (OC, IC / groups, KH, KW) or, for a dense layer, (out, in); or a .npz "
        "file with such an array `weight`, and an epilogue: scale and bias; thresholds (OC, levels); or multiplier, "
        "shift and bits.",
        show_default=False,
    ),
]

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.", show_default=False)]

# Networks.
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
    Encoding, typer.Option("--input-encoding", metavar="ENCODING", help=f"What those codes are: {_ENCODINGS}.")
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

# Kernels: one, or those of several sets and widths.
IsaOption = Annotated[
    str, typer.Option("--isa", metavar="SET", help="Instruction set; `bitsynth isa list` shows them.")
]
IsaOrAuto = Annotated[
    str, typer.Option("--isa", metavar="SET", help="Instruction set; auto is the best this processor has.")
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
HtmlFile = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write a page of it all to FILE.", show_default=False)
]
Isas = Annotated[str, typer.Option("--isa", metavar="SETS", help="Only these instruction sets, such as avx2,neon.")]
ActBits = Annotated[int, typer.Option("--act-bits", metavar="N", help="Bits of an activation, 1 to 8.")]
WBits = Annotated[int, typer.Option("--w-bits", metavar="N", help="Bits of a weight, 1 to 8.")]
ManyActBits = Annotated[
    str, typer.Option("--act-bits", metavar="BITS", help="Bits of activations, such as 1-4 or 1,2.")
]
ManyWBits = Annotated[str, typer.Option("--w-bits", metavar="BITS", help="Bits of weights, such as 1-4 or 1,2.")]
ActEncoding = Annotated[
    Encoding, typer.Option("--act-encoding", metavar="ENCODING", help=f"What activation codes stand for: {_ENCODINGS}.")
]
WeightEncoding = Annotated[
    Encoding, typer.Option("--weight-encoding", metavar="ENCODING", help=f"What weight codes stand for: {_ENCODINGS}.")
]
Method = Annotated[str | None, typer.Option("--method", metavar="METHOD", help=f"Only by one of {', '.join(METHODS)}.")]
Sketch = Annotated[
    str, typer.Option("--sketch", metavar="SKETCH", help=f"What programs may look like: {' or '.join(SKETCHES)}.")
]
CostModel = Annotated[
    str, typer.Option("--cost", metavar="MODEL", help="What to minimize: ops or length.", show_default="ops")
]
Cpu = Annotated[
    str,
    typer.Option(
        "--cpu", metavar="NAME", help="In cycles of this processor, with the instructions it has.", show_default=False
    ),
]
ForCpus = Annotated[
    str,
    typer.Option(
        "--cpu",
        metavar="NAMES",
        help="The processor of the set to be fast on, such as a72, or several, the first preferred elsewhere.",
        show_default="this one, or the first of the set",
    ),
]
ForCpu = Annotated[
    str,
    typer.Option(
        "--cpu",
        metavar="NAME",
        help="The processor of the set to be fast on, such as a72.",
        show_default="this one, or the first of the set",
    ),
]
Channels = Annotated[
    int,
    typer.Option(
        "--channels",
        metavar="N",
        min=0,
        help="For layers of so many output channels: activations in rows.",
        show_default=False,
    ),
]
Variant = Annotated[
    str | None,
    typer.Option(
        "--variant", metavar="NAME", help="Of kernels with that name the one `list` says this of, such as paper-length."
    ),
]

Variants = Annotated[
    str,
    typer.Option("--variant", metavar="NAME", help="Of this variant, such as a53, lookup-c64 or paper-length."),
]
All = Annotated[bool, typer.Option("--all", help="Every kernel, a line each, on a terminal too.")]

# The solver.
Fresh = Annotated[bool, typer.Option("--fresh", help="Solve anew, even if the kernel is cached.")]
Solve = Annotated[bool, typer.Option("--solve", help="Find, prove and cache a kernel if none is cached.")]
OfModel = Annotated[
    Path | None,
    typer.Option("--model", metavar="ONNX", help="The file that a network must be compiled from.", show_default=False),
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse a network with a step of which nothing is claimed.")]
Rlimit = Annotated[
    int | None,
    typer.Option("--rlimit", metavar="N", min=1, help="Budget of the solver, in its own units.", show_default=False),
]
NoZ3 = Annotated[bool, typer.Option("--no-z3", help="Leave what takes the solver to the stored certificate.")]
NoMinimality = Annotated[bool, typer.Option("--no-minimality", help="Do not solve the sketch again.")]
Check = Annotated[bool, typer.Option("--check", help="Check every certificate again, not the digest alone.")]
Bless = Annotated[bool, typer.Option("--bless", help="Record that every form passed, so that synthesis may use it.")]
Jobs = Annotated[
    int | None, typer.Option("--jobs", metavar="N", min=1, help="Processes to plan in.", show_default="one a core")
]

# A layer.
LayerName = Annotated[str, typer.Option("--name", metavar="NAME", help="What the layer is called in C.")]
InChannels = Annotated[
    int | None,
    typer.Option(
        "--in-channels",
        metavar="N",
        help="Channels of its input, of all groups.",
        min=1,
        max=_MOST_CHANNELS,
        rich_help_panel=_LAYER,
    ),
]
OutChannels = Annotated[
    int | None,
    typer.Option(
        "--out-channels",
        metavar="N",
        help="Channels of its output, of all groups.",
        min=1,
        max=_MOST_CHANNELS,
        rich_help_panel=_LAYER,
    ),
]
Window = Annotated[
    str, typer.Option("--kernel", metavar="N[,N]", help="Pixels, or height,width.", rich_help_panel=_LAYER)
]
Stride = Annotated[
    str, typer.Option("--stride", metavar="N[,N]", help="Pixels, or down,right.", rich_help_panel=_LAYER)
]
Padding = Annotated[
    str,
    typer.Option(
        "--padding",
        metavar="N[,N[,N,N]]",
        help="Pixels, or height,width, or top,left,bottom,right, or same.",
        rich_help_panel=_LAYER,
    ),
]
Dilation = Annotated[
    str, typer.Option("--dilation", metavar="N[,N]", help="Pixels, or down,right.", rich_help_panel=_LAYER)
]
ZeroPoint = Annotated[
    int, typer.Option("--zero-point", metavar="N", help="The value of activations that stands for 0; padding has it.")
]
Groups = Annotated[
    int, typer.Option("--groups", metavar="N", min=1, help="Groups of channels.", rich_help_panel=_LAYER)
]
ImageOption = Annotated[
    str,
    typer.Option(
        "--image",
        metavar="HxW",
        help="Height and width of the input that the schedule is chosen for.",
        show_default="28x28",
        rich_help_panel=_LAYER,
    ),
]
Layout = Annotated[
    str,
    typer.Option(
        "--layout", metavar="LAYOUT", help="How activations lie: NHWC, NCHW or packed.", rich_help_panel=_LAYER
    ),
]
OutLayout = Annotated[
    str,
    typer.Option(
        "--out-layout",
        metavar="LAYOUT",
        help="How results lie: NHWC, NCHW or packed.",
        show_default="as activations",
        rich_help_panel=_LAYER,
    ),
]

# Measuring.
Layers = Annotated[
    str | None,
    typer.Option("--layers", metavar="NAMES", help="Layers of ResNet-18, such as C2,C6.", show_default="all eleven"),
]
FormOption = Annotated[
    str,
    typer.Option(
        "--form", metavar="FORM", help="sums: codes to int32; packed: words of codes to words, by thresholds."
    ),
]
ManyWeightEncodings = Annotated[
    str,
    typer.Option("--weight-encoding", metavar="ENCODINGS", help="What weights stand for, such as bipolar,signed."),
]
Peers = Annotated[
    bool, typer.Option("--peers/--no-peers", help="Whether ONNX Runtime and emx-onnx-cgen take turns, if installed.")
]
Threads = Annotated[
    int, typer.Option("--threads", metavar="N", min=1, max=MOST_THREADS, help="Threads of a layer or network.")
]
Repeats = Annotated[int, typer.Option("--repeats", metavar="N", min=1, help="Samples of every kernel and baseline.")]
Rounds = Annotated[int, typer.Option("--rounds", metavar="N", min=1, help="Samples of every layer.")]
Baselines = Annotated[str, typer.Option("--baseline", metavar="PACKAGES", help="Packages to measure against.")]
Trials = Annotated[
    int, typer.Option("--trials", metavar="N", min=1, help="Trials of a layer's study, earlier ones included.")
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout-s", metavar="SECONDS", help="Seconds a trial may take, compiling included; then it failed."
    ),
]
StudyFile = Annotated[
    Path | None,
    typer.Option(
        "--study", metavar="FILE", help="Where trials are kept, of all layers.", show_default="in the user's cache"
    ),
]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="HOST", help="Measure on this host, by ssh, such as pi@board.", show_default=False
    ),
]
Devices = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        metavar="HOST",
        help="Measure on this host, by ssh, such as pi@board; once for each that shares the work.",
        show_default=False,
    ),
]
DeviceRunner = Annotated[str, typer.Option("--device-runner", hidden=True, help="What runs programs there.")]

# What is written.
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and only JSON, on stdout.")]
CSourceOption = Annotated[bool, typer.Option("--c", help="Print the C source instead.")]
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write every figure to FILE.", show_default=False)
]
CsvFile = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE", help="Write a line a figure to FILE.", show_default=False)
]
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="PREFIX", help="Write PREFIX.png and PREFIX.svg.", show_default=False)
]
Folder = Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Where the files go.")]
OptionalFolder = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="DIR", help="Where the files go.", show_default="the user's cache"),
]
Version = Annotated[bool, typer.Option("--version", help="Print the version and exit.")]
