"""Plan the kernel of one method for one pair of widths; as a process, `python -m bitsynth.synth.planner`, many.

A line of JSON each way: a `Job`, and the `PlannedKernel`. Ends with its input.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from bitsynth.errors import BitsynthError
from bitsynth.processes.worker import command_of, take_stdout
from bitsynth.schedule import cost
from bitsynth.schedule.quickest import scoreboard
from bitsynth.solver.budget import Budget
from bitsynth.spec.matmul import MatmulSpec
from bitsynth.spec.options import KernelOptions
from bitsynth.synth import synthesize

COMMAND = command_of("bitsynth.synth.planner")
LIMIT = 120
"""Seconds a method may take for one pair of widths, if the system has alarms."""
Job = tuple[str, str, int, int, str]
"""Instruction set, processor, bits of activations and of weights, method."""


@dataclass(frozen=True)
class PlannedKernel:
    """The cheapest kernel of one method: cycles per 128 multiply-accumulates, or None and the reason.

    `scoreboard` are those predicted with loads, flushes and spills, None for a processor without issue rules.
    """

    act_bits: int
    w_bits: int
    method: str
    cycles: float | None
    tile: str
    why: str
    seconds: float
    scoreboard: float | None = None


def spec(job: Job) -> MatmulSpec:
    """Return the widths of a job; SpecError if there are none such."""
    isa, _, act_bits, w_bits, _ = job
    return MatmulSpec.plain(isa, act_bits, w_bits)


def plan(job: Job) -> PlannedKernel:
    """Return the cheapest kernel of one method for one pair of widths."""
    isa, cpu, act_bits, w_bits, method = job
    options = KernelOptions(method, model=cpu)
    start = time.perf_counter()
    cycles, predicted, size, why = None, None, "", ""
    try:
        with _limit_time(LIMIT):
            results, _ = synthesize.candidates(options.isa(isa), spec(job), options, Budget())
            kernel = results[0].kernel
            predicted = scoreboard(kernel, [cpu]).get(cpu)
        cycles = cost.figure(options.isa(isa), kernel, cpu)
        size = f"{kernel.rows}x{kernel.columns}x{kernel.k_step}"
    except BitsynthError as error:
        why = str(error)
    except TimeoutError:
        why = f"not planned within {LIMIT} s"
    return PlannedKernel(act_bits, w_bits, method, cycles, size, why, round(time.perf_counter() - start, 2), predicted)


@contextmanager
def _limit_time(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after that many seconds, on systems with alarms. An alarm interrupts a solver too.

    An interrupt in a finalizer is lost, so the alarm goes off again each second; ctypes makes another exception of one.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    rung: list[int] = []
    hook = sys.unraisablehook

    def raise_timeout(signum: int, frame: Any) -> None:
        rung.append(signum)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, raise_timeout)
    sys.unraisablehook = lambda what: None if rung else hook(what)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1)
    try:
        yield
    except BaseException:
        if not rung:
            raise
        raise TimeoutError from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = hook


if __name__ == "__main__":
    with take_stdout() as answer:
        for line in sys.stdin.buffer:
            answer(msgspec.json.encode(plan(msgspec.json.decode(line, type=Job))))
