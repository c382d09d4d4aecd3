"""The process that runs another package: `python -m bitsynth.bench.baselines.worker PACKAGE THREADS`.

It reads a question from each line of standard input and writes an answer, both in JSON, until the input ends:

    ["C2", "C3"]                                         the layers to prepare
    -> {"about": ..., "variants": ..., "problems": ...}  facts on the package, its variants, variants that fail
    {"variant": ..., "layer": ..., "repeats": ...}       a measurement
    -> times in nanoseconds
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

from bitsynth.bench.baselines.convolution import ConvOperands
from bitsynth.bench.call_times import sample_calls
from bitsynth.bench.resnet18 import LAYERS
from bitsynth.processes.worker import take_stdout

Calls = dict[tuple[str, str], Callable[[], object]]


def serve(package: Any, threads: int, questions: Iterable[str], answer: Callable[[Any], object]) -> None:
    """Prepare the layers that the first question names, then answer each other question with times."""
    questions = iter(questions)
    about = package.start(threads)
    calls, problems = _prepare(package, threads, json.loads(next(questions)))
    variants = {v: kind for v, kind in package.VARIANTS.items() if v not in problems}
    answer({"about": about, "variants": variants, "problems": problems})
    for line in questions:
        asked = json.loads(line)
        answer(sample_calls(calls[asked["variant"], asked["layer"]], asked["repeats"], threads))


def _prepare(package: Any, threads: int, names: list[str]) -> tuple[Calls, dict[str, str]]:
    """Return a call for each variant and layer, and for each variant that fails the reason."""
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
    """Return a call of a layer whose results are right; raise what the package raises."""
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
