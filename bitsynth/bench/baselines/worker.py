"""A package baseline's process: `python -m bitsynth.bench.baselines.worker PACKAGE THREADS`.

A line of JSON each way. The first answer says what is there, every other one gives the times of what was
asked for: {"variant": ..., "layer": ..., "repeats": ...}. Ends with its input.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

from bitsynth.bench.baselines.operands import ConvOperands
from bitsynth.bench.resnet18 import LAYERS
from bitsynth.bench.sampling import sample_calls
from bitsynth.processes.worker import take_stdout

Calls = dict[tuple[str, str], Callable[[], object]]


def serve(package: Any, threads: int, questions: Iterable[str], answer: Callable[[Any], object]) -> None:
    """Prepare every layer that is asked for in the first line, then time what the others ask for."""
    questions = iter(questions)
    about = package.start(threads)
    calls, problems = _prepare(package, threads, json.loads(next(questions)))
    variants = {v: kind for v, kind in package.VARIANTS.items() if v not in problems}
    answer({"about": about, "variants": variants, "problems": problems})
    for line in questions:
        asked = json.loads(line)
        answer(sample_calls(calls[asked["variant"], asked["layer"]], asked["repeats"], threads))


def _prepare(package: Any, threads: int, names: list[str]) -> tuple[Calls, dict[str, str]]:
    """Calls of every layer of every variant, and the reasons of variants that fail."""
    calls: Calls = {}
    problems: dict[str, str] = {}
    for operands in (ConvOperands.of(layer) for layer in LAYERS if layer.name in names):
        for variant in package.VARIANTS:
            try:
                calls[variant, operands.layer.name] = _check_results(package, variant, operands, threads)
            except Exception as error:
                problems[variant] = f"{type(error).__name__}: {error}".partition("\n")[0]
    return calls, problems


def _check_results(package: Any, variant: str, operands: ConvOperands, threads: int) -> Callable[[], object]:
    prepared = package.prepare(variant, operands, threads)
    prepared.check(operands)
    call: Callable[[], object] = prepared.call
    return call


def _main(name: str, threads: str) -> None:
    with take_stdout() as answer:
        package = importlib.import_module(f"bitsynth.bench.baselines.{name}_baseline")
        serve(package, int(threads), sys.stdin, lambda value: answer(json.dumps(value).encode()))


if __name__ == "__main__":
    _main(*sys.argv[1:])
