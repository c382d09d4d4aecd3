"""Options of measurements: how often, on which host, compared with which packages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bitsynth.spec.options import MAX_THREADS

Layers = Annotated[
    str | None,
    typer.Option("--layers", metavar="NAMES", help="Layers of ResNet-18, such as C2,C6.", show_default="all eleven"),
]
FormOption = Annotated[
    str,
    typer.Option(
        "--form",
        metavar="FORM",
        help="sums: codes to int32 accumulators; packed: bit-packed codes to bit-packed codes, by thresholds.",
    ),
]
Peers = Annotated[
    bool,
    typer.Option(
        "--peers/--no-peers",
        help="Whether to measure ONNX Runtime, OpenVINO, emx-onnx-cgen and LiteRT too, if installed.",
    ),
]
Threads = Annotated[
    int,
    typer.Option("--threads", metavar="N", min=1, max=MAX_THREADS, help="Threads that a layer or network runs on."),
]
Repeats = Annotated[int, typer.Option("--repeats", metavar="N", min=1, help="Samples of every kernel and baseline.")]
Rounds = Annotated[
    int, typer.Option("--rounds", metavar="N", min=1, help="Rounds; each round measures everything once.")
]
Baselines = Annotated[str, typer.Option("--baseline", metavar="PACKAGES", help="Packages to compare with.")]
Trials = Annotated[
    int, typer.Option("--trials", metavar="N", min=1, help="Trials for each layer, earlier ones included.")
]
Timeout = Annotated[
    float,
    typer.Option("--timeout-s", metavar="SECONDS", help="Seconds after which a trial has failed, compiling included."),
]
StudyFile = Annotated[
    Path | None,
    typer.Option(
        "--study", metavar="FILE", help="The file that keeps trials of all layers.", show_default="in the user's cache"
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
        help="Measure on this host, by ssh, such as pi@board; repeat the option to share the work between boards.",
        show_default=False,
    ),
]
DeviceRunner = Annotated[
    str, typer.Option("--device-runner", hidden=True, help="The emulator that runs programs there.")
]
