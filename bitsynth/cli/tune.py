"""`bitsynth tune`: better schedules by measuring."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bitsynth.cli import output, tune_report
from bitsynth.cli.files import require_writable
from bitsynth.cli.options import Json
from bitsynth.errors import SpecError, ToolError
from bitsynth.isa import load

if TYPE_CHECKING:
    from bitsynth.layers.geometry import Geometry
    from bitsynth.layers.tuned import TuningTask
    from bitsynth.tune.outcome import TuningRun

Size = tuple[int, int]
_OWN = "A layer of your own"
_Isa = Annotated[str, typer.Option("--isa", help="Instruction set; this processor, or every board, must have it.")]
_ActBits = Annotated[int, typer.Option("--act-bits", help="Bits of an activation, 1 to 8.")]
_WBits = Annotated[int, typer.Option("--w-bits", help="Bits of a weight, 1 to 8.")]
_Layers = Annotated[
    str | None,
    typer.Option("--layers", metavar="NAMES", help="Of ResNet-18, such as C2,C6.", show_default="all eleven"),
]
_Threads = Annotated[int, typer.Option("--threads", min=1, max=256, help="Threads of a layer.")]
_Trials = Annotated[int, typer.Option("--trials", min=1, help="Trials of a layer's study, earlier ones included.")]
_Timeout = Annotated[
    float, typer.Option("--timeout-s", help="Seconds a trial may take, compiling included; then it failed.")
]
_StudyFile = Annotated[
    Path | None,
    typer.Option(
        "--study", metavar="FILE", help="Where trials are kept, of all layers.", show_default="in the user's cache"
    ),
]
_Out = Annotated[
    Path | None,
    typer.Option("-o", metavar="FOLDER", help="Where results go.", show_default="the user's cache"),
]
_Devices = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        metavar="HOST",
        help="Measure on this host, by ssh, such as pi@board; once for each that shares the work.",
        show_default=False,
    ),
]
_DeviceRunner = Annotated[str, typer.Option("--device-runner", hidden=True, help="What runs programs there.")]
_Channels = Annotated[int | None, typer.Option(min=1, max=1 << 16, rich_help_panel=_OWN, show_default=False)]
_Count = Annotated[int, typer.Option(min=1, rich_help_panel=_OWN)]
_Padding = Annotated[int, typer.Option("--padding", min=0, rich_help_panel=_OWN)]
_Image = Annotated[
    str, typer.Option("--image", metavar="HxW", help="Height and width of the input.", rich_help_panel=_OWN)
]


def tune(
    isa: _Isa,
    act_bits: _ActBits,
    w_bits: _WBits,
    layers: _Layers = None,
    threads: _Threads = 1,
    trials: _Trials = 60,
    timeout_s: _Timeout = 60,
    study: _StudyFile = None,
    out: _Out = None,
    json: Json = False,
    in_channels: _Channels = None,
    out_channels: _Channels = None,
    kernel: _Count = 3,
    stride: _Count = 1,
    padding: _Padding = 0,
    dilation: _Count = 1,
    groups: _Count = 1,
    image: _Image = "28x28",
    device: _Devices = None,
    device_runner: _DeviceRunner = "",
) -> None:
    """Find faster schedules of layers by measuring, for layers of ResNet-18 or one of your own.

    Every trial is compiled, checked against the default schedule's results to the bit, and measured beside it, in
    a process of its own. Trials are kept in the study's file as they end: the same command goes on where an
    earlier one stopped, and several at a time share the work. Results are taken by every layer of the same sizes,
    widths, image and threads that is given no schedule.

    With --device trials are compiled here, checked and timed on boards of one kind. One that disappears loses its
    trial and the others go on. Layers take the results where they run on that kind of processor, or not on this one.

    Exit code 2 for bad input or a study that does not fit, 4 where a file cannot be written or nothing be measured.
    """
    if importlib.util.find_spec("optuna") is None:
        raise ToolError("the package optuna is not installed: pip install 'bitsynth[tune]'")
    if not 1 <= timeout_s < threading.TIMEOUT_MAX:
        raise SpecError(f"--timeout-s: want a number of seconds from 1 on, not {timeout_s}")
    own = _own(in_channels, out_channels, kernel, stride, padding, dilation, groups)
    if own and layers is not None:
        raise SpecError("give --layers or the channels of a layer of your own, not both")
    chosen = {"own": (own, _size(image))} if own else _resnet18(layers)
    from bitsynth.layers.tuned import TuningTask

    if out:
        require_writable(out, "name another folder with -o")
    tasks = {n: TuningTask(isa, act_bits, w_bits, g, size, threads) for n, (g, size) in chosen.items()}
    for task in tasks.values():
        _require(task)
    results = {}
    with _workplace(device or [], device_runner, list(tasks.values())) as tuned:
        for name, task in tasks.items():
            with output.progress(f"tune {name}") as say:
                results[name] = tuned(task, trials, timeout_s, study, out, say)
    tune_report.show(results, json)


def _require(task: TuningTask) -> None:
    """SpecError where the task makes no sense."""
    load.load(task.isa)
    task.spec()
    task.geometry.output(*task.image)


@contextmanager
def _workplace(hosts: list[str], runner: str, tasks: list[TuningTask]) -> Iterator[Callable[..., TuningRun]]:
    """What tunes a task, here or on boards; an error where one of `tasks` cannot be measured there."""
    if hosts:
        from bitsynth.tune import boards, remote

        with ExitStack() as stack:
            with output.progress("tune") as say:
                say(f"connecting to {', '.join(hosts)}")
                found = stack.enter_context(boards.opened(hosts, tasks[0].isa, _lost, runner))
            for task in tasks:
                remote.require(found, task)
            yield partial(remote.tuned, found)
    else:
        from bitsynth.tune import local

        for task in tasks:
            local.require(task)
        yield local.tuned


def _lost(why: str) -> None:
    output.warning(f"a board was lost: {why}")


def _own(
    in_channels: int | None,
    out_channels: int | None,
    kernel: int,
    stride: int,
    padding: int,
    dilation: int,
    groups: int,
) -> Geometry | None:
    """The layer whose channels are given; SpecError for half of them."""
    from bitsynth.layers.geometry import Geometry, edges, pair

    if in_channels is None and out_channels is None:
        return None
    if in_channels is None or out_channels is None:
        raise SpecError("a layer of your own takes both --in-channels and --out-channels")
    if in_channels % groups:
        raise SpecError(f"{in_channels} input channels cannot be shared by {groups} groups")
    window = pair("kernel", kernel, 1), pair("stride", stride, 1), edges(padding), pair("dilation", dilation, 1)
    return Geometry(in_channels, out_channels, groups, *window)


def _size(text: str) -> Size:
    """Height and width of `28x28` or `28`."""
    parts = text.split("x") if "x" in text else [text, text]
    if len(parts) != 2 or not all(p.isascii() and p.isdigit() and 0 < int(p) < 1 << 15 for p in parts):
        raise SpecError(f"--image: want height and width, such as 28x28, not {text!r}")
    return int(parts[0]), int(parts[1])


def _resnet18(names: str | None) -> dict[str, tuple[Geometry, Size]]:
    """The layers named, all where none is."""
    from bitsynth.bench.resnet18 import LAYERS, named

    return {x.name: (x.geometry, x.image) for x in (LAYERS if names is None else named(names))}
