"""Draw the plots of published results again from their JSON files; nothing is measured.

    python benchmarks/redraw.py [RESULT ...]

Without names it draws every result that it can: `resnet18_*`, `kernels_*`, `arm_cycles` and `arm_predictions`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import arm_cycles
import arm_cycles_plot
import arm_predictions
import arm_predictions_plot
import msgspec
import published
import report

from bitsynth.bench.kernels import KernelsReport
from bitsynth.bench.layers import LayersReport
from bitsynth.bench.plots import kernels, layers
from bitsynth.errors import SpecError


def draw_layers(facts: Mapping[str, Any], stem: Path) -> None:
    """Draw a result of `bitsynth bench resnet18`."""
    keys = {"contender": "subject", "peer": "baseline"}
    layers.draw([msgspec.convert(renamed(r, keys), LayersReport) for r in facts["reports"]], stem)


def renamed(value: Any, keys: Mapping[str, str]) -> Any:
    """Return the JSON value with the keys of its objects renamed."""
    if isinstance(value, dict):
        return {keys.get(key, key): renamed(inner, keys) for key, inner in value.items()}
    return [renamed(inner, keys) for inner in value] if isinstance(value, list) else value


def draw_kernels(facts: Mapping[str, Any], stem: Path) -> None:
    """Draw a result of `bitsynth bench kernels`."""
    kernels.draw([msgspec.convert({**r, "problems": []}, KernelsReport) for r in facts["sets"]], stem)


def draw_arm_cycles(facts: Mapping[str, Any], stem: Path) -> None:
    """Draw the result of `arm_cycles.py`: of each processor and width the kernel with the fewest cycles."""
    rows = msgspec.convert(facts["rows"], list[arm_cycles.Row])
    best = [(cpu, w, arm_cycles.best(rows, cpu, w)) for cpu in arm_cycles.SETS for w in facts["goals"][cpu]]
    arm_cycles_plot.draw(best, rows, facts["goals"], stem.parent)


def draw_predictions(facts: Mapping[str, Any], stem: Path) -> None:
    """Draw the result of `arm_predictions.py`."""
    arm_predictions_plot.draw(msgspec.convert(facts["rows"], list[arm_predictions.Row]), stem)


KINDS: Mapping[str, Callable[[Mapping[str, Any], Path], None]] = {
    "resnet18_": draw_layers,
    "kernels_": draw_kernels,
    "arm_cycles": draw_arm_cycles,
    "arm_predictions": draw_predictions,
}
"""What draws a result, by how its name begins."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("results", nargs="*", metavar="RESULT")
    named = parser.parse_args().results
    drawn = {stem: draw for stem in published.COMMANDS for kind, draw in KINDS.items() if stem.startswith(kind)}
    if unknown := [stem for stem in named if stem not in drawn]:
        raise SpecError(f"cannot draw {unknown[0]!r} from its file; known: {', '.join(drawn)}")
    for result in published.results(named or drawn):
        drawn[result.stem](result.facts, published.FOLDER / result.stem)
    return 0


if __name__ == "__main__":
    report.run(main)
