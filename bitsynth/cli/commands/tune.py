"""`bitsynth tune`: find faster schedules of layers by measuring."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from rich.text import Text

from bitsynth.cli import output
from bitsynth.cli.options.instruction_sets import IsaOption
from bitsynth.cli.options.kernels import ActBits, WBits
from bitsynth.cli.options.layers import Dilation, Groups, ImageOption, InChannels, OutChannels, Padding, Stride, Window
from bitsynth.cli.options.measuring import DeviceRunner, Devices, Layers, StudyFile, Threads, Timeout, Trials
from bitsynth.cli.options.output import Json, OptionalFolder
from bitsynth.cli.output import require_writable
from bitsynth.cli.parse import parse_numbers, parse_padding, parse_size
from bitsynth.errors import SpecError, ToolError
from bitsynth.isa import load

if TYPE_CHECKING:
    from bitsynth.layers.geometry import Geometry
    from bitsynth.layers.tuned import TuningTask
    from bitsynth.tune.loop import Share, TuningRun

Size = tuple[int, int]


def tune(
    isa: IsaOption,
    act_bits: ActBits,
    w_bits: WBits,
    layers: Layers = None,
    threads: Threads = 1,
    trials: Trials = 60,
    timeout_s: Timeout = 60,
    study: StudyFile = None,
    out: OptionalFolder = None,
    json: Json = False,
    in_channels: InChannels = None,
    out_channels: OutChannels = None,
    kernel: Window = "3",
    stride: Stride = "1",
    padding: Padding = "0",
    dilation: Dilation = "1",
    groups: Groups = 1,
    image: ImageOption = "28x28",
    device: Devices = None,
    device_runner: DeviceRunner = "",
) -> None:
    """Find faster schedules of layers by measuring.

    The layers are ResNet-18's, or one of your own. Every trial is compiled, compared with the default
    schedule's results to the bit, and measured in turns with it in a process of its own. Trials are kept in the study's
    file as they end: the same command continues where an earlier one stopped, and several at a time share the work.
    From then on every layer with the same sizes, widths, image and threads that is given no schedule uses the result.

    With --device trials are compiled here, checked and timed on boards of one kind. If a board disappears, its trial
    is lost and the others go on. Layers use the result if they run on that kind of processor, or are compiled for
    another machine than this one.

    Exit code 2 for bad input or a study that does not fit, 4 if a file cannot be written or nothing can be measured.
    """
    if importlib.util.find_spec("optuna") is None:
        raise ToolError("the package optuna is not installed: pip install 'bitsynth[tune]'")
    if not 1 <= timeout_s < threading.TIMEOUT_MAX:
        raise SpecError(f"--timeout-s: want a number of seconds from 1 on, not {timeout_s}")
    window = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    own = _own_layer(in_channels, out_channels, groups, window)
    if own and layers is not None:
        raise SpecError("give --layers or the channels of a layer of your own, not both")
    chosen = {"own": (own, parse_size("--image", image))} if own else _resnet18_layers(layers)
    from bitsynth.layers.tuned import TuningTask

    if out:
        require_writable(out, "name another folder with -o")
    tasks = {n: TuningTask(isa, act_bits, w_bits, g, of, threads) for n, (g, of) in chosen.items()}
    for task in tasks.values():
        _require_tunable(task)
    results = {}
    with _open_workplace(device or [], device_runner, list(tasks.values())) as tuned:
        for name, task in tasks.items():
            with output.progress(f"tune {name}") as say:
                results[name] = tuned(task, trials, timeout_s, study, out, say)
    _show(results, json)


def _require_tunable(task: TuningTask) -> None:
    """Raise SpecError if the task has no output or no tile to tune."""
    load.load(task.isa)
    task.geometry.output(*task.image)
    if task.geometry.groups > 1:
        from bitsynth.layers.planning import plan
        from bitsynth.layers.schedule import DEPTHWISE

        planned = plan(task.layer(), isa=task.isa, threads=task.threads)
        if planned.schedule.method == DEPTHWISE:
            raise SpecError(f"the layer runs on {planned.kernel.name}, a depthwise kernel: it has no tiles to tune")


@contextmanager
def _open_workplace(hosts: list[str], runner: str, tasks: list[TuningTask]) -> Iterator[Callable[..., TuningRun]]:
    """Yield a function that tunes a task here or on boards; raise if a task cannot be measured there."""
    if hosts:
        from bitsynth.tune import boards

        with ExitStack() as stack:
            with output.progress("tune") as say:
                say(f"connecting to {', '.join(hosts)}")
                have = stack.enter_context(boards.open_boards(hosts, tasks[0].isa, _warn_of_lost_board, runner))
            for task in tasks:
                boards.require_measurable(have, task)
            yield partial(boards.tune_task, have)
    else:
        from bitsynth.tune import local

        for task in tasks:
            local.require_measurable(task)
        yield local.tune_task


def _warn_of_lost_board(why: str) -> None:
    output.warning(f"a board was lost: {why}")


def _own_layer(
    in_channels: int | None, out_channels: int | None, groups: int, window: Mapping[str, str]
) -> Geometry | None:
    """Return the layer whose channels are given; None without channels, SpecError for half of them."""
    from bitsynth.layers.geometry import Geometry, padding_of, pair

    if in_channels is None and out_channels is None:
        return None
    if in_channels is None or out_channels is None:
        raise SpecError("a layer of your own takes both --in-channels and --out-channels")
    if in_channels % groups:
        raise SpecError(f"{in_channels} input channels cannot be shared by {groups} groups")
    given = {name: parse_numbers(f"--{name}", text, 1, 2) for name, text in window.items() if name != "padding"}
    kernel, stride, dilation = (pair(name, given[name], 1) for name in ("kernel", "stride", "dilation"))
    around = padding_of(parse_padding("--padding", window["padding"]), kernel, stride, dilation)
    return Geometry(in_channels, out_channels, groups, kernel, stride, around, dilation)


def _resnet18_layers(names: str | None) -> dict[str, tuple[Geometry, Size]]:
    """Return the named layers of ResNet-18, or all of them."""
    from bitsynth.bench.resnet18 import LAYERS, select_layers

    return {x.name: (x.geometry, x.image) for x in (LAYERS if names is None else select_layers(names))}


def _show(outcomes: Mapping[str, TuningRun], as_json: bool) -> None:
    """Print a table, or (`as_json`) a list of objects."""
    if as_json:
        output.write_json([{"layer": name, **_facts(x)} for name, x in outcomes.items()])
        return
    # A row a layer.
    numbers = ("default ms", "tuned ms", "ratio", "trials", "failed")
    table = output.table("layer", *numbers, "schedule", right=numbers, whole=("layer",))
    for name, x in outcomes.items():
        t = x.result.timing
        times = f"{t.default_nanoseconds / 1e6:.4f}", f"{t.nanoseconds / 1e6:.4f}", f"{t.ratio:.3f}"
        table.add_row(name, *times, str(x.result.trials), str(len(x.result.failures)), str(x.result.schedule))
    output.write(table, "")
    # What failed, and what each board did.
    for name, x in outcomes.items():
        for why in dict.fromkeys(x.result.failures):
            output.warning(f"{name}: a trial failed: {why}")
        for share in x.shares:
            _show_share(name, share)
    # Where it is kept.
    for path in sorted({x.stored for x in outcomes.values()}):
        output.write(Text(f"wrote  {path}"))
    for path in sorted({x.study for x in outcomes.values()}):
        output.write(Text(f"study  {path}"))


def _show_share(name: str, share: Share) -> None:
    output.write(f"{name}  {share.host}, {output.count(share.trials, 'trial')}: {share.after}")
    if share.after.throttled not in ("", "none"):
        output.warning(f"{name}: {share.host} was held back: {share.after.throttled}")


def _facts(x: TuningRun) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(x.tuned)
    figures = {"ratio": x.result.timing.ratio, "trials": x.result.trials, "failures": x.result.failures}
    boards = [{**asdict(s), "before": str(s.before), "after": str(s.after)} for s in x.shares]
    return {
        **built,
        **figures,
        "stored": str(x.stored),
        "study": str(x.study),
        **({"boards": boards} if boards else {}),
    }
