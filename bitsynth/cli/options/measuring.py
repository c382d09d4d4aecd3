"""Options of measurements: how often, on which host, beside which packages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bitsynth.spec.options import MOST_THREADS

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
