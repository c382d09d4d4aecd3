"""Draw the plots of published results again from their JSON files; nothing is measured.

    python benchmarks/redraw.py [RESULT ...]

Without names it draws every result that has a plot, in benchmarks/results and, for networks, in docs/results.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import arm_cycles
import arm_cycles_plot
import arm_layer_cycles
import arm_layer_cycles_plot
import arm_layers
import arm_layers_plot
import arm_predictions
import arm_predictions_plot
import depthwise
import depthwise_plot
import epilogues
import epilogues_plot
import figures_plot
import msgspec
import networks
import networks_by_width
import networks_by_width_plot
import networks_plot
import published
import quantizers
import quantizers_plot
import report
import schedule_steps
import schedule_steps_plot
import width_grid
import width_grid_plot

from bitsynth.bench.kernels import KernelsReport
from bitsynth.bench.layers import SUM, LayersReport
from bitsynth.bench.plots import kernels, layers, survey
from bitsynth.errors import SpecError
from bitsynth.synth.survey import Map


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


def draw_layer_cycles(facts: Mapping[str, Any], stem: Path) -> None:
    """Draw the result of `arm_layer_cycles.py`."""
    rows = msgspec.convert(facts["rows"], list[arm_layer_cycles.Row])
    arm_layer_cycles_plot.draw([row for row in rows if row.layer != SUM], stem)


def draw_epilogues(facts: Mapping[str, Any], stem: Path) -> None:
    """Draw a result of `epilogues.py`."""
    epilogues_plot.draw(msgspec.convert(facts["rows"], list[epilogues.Row]), facts["isa"], stem)


def draw_depthwise(facts: Mapping[str, Any], stem: Path) -> None:
    """Draw a result of `depthwise.py`."""
    depthwise_plot.draw(msgspec.convert(facts["rows"], list[depthwise.Row]), facts["isa"], stem)


def draw_networks_by_width(facts: Mapping[str, Any], stem: Path) -> None:
    """Draw a result of `networks_by_width.py`."""
    rows = msgspec.convert(facts["rows"], list[networks_by_width.Row])
    networks_by_width_plot.draw(rows, networks_by_width.TITLES, stem)


def draw_maps(facts: Mapping[str, Any], stem: Path) -> None:
    """Draw a result of `explore.py`."""
    unknown = {"seconds": 0.0, "why": ""}
    maps = [
        {**m, "cells": [{**c, "plans": [{**unknown, **c, **k} for k in c["kernels"]]} for c in m["cells"]]}
        for m in facts["maps"]
    ]
    survey.draw(msgspec.convert(maps, list[Map]), stem)


KINDS: Mapping[str, Callable[[Mapping[str, Any], Path], None]] = {
    "resnet18_": draw_layers,
    "kernels_": draw_kernels,
    "arm_cycles": draw_arm_cycles,
    "arm_layer_cycles": draw_layer_cycles,
    "arm_layers": lambda facts, stem: arm_layers_plot.draw(msgspec.convert(facts["rows"], list[arm_layers.Row]), stem),
    "arm_predictions": draw_predictions,
    "depthwise_": draw_depthwise,
    "epilogues_": draw_epilogues,
    "explore_": draw_maps,
    "figures": lambda facts, stem: figures_plot.draw(facts["ops"], stem),
    "schedule_steps": lambda facts, stem: schedule_steps_plot.draw(
        msgspec.convert(facts["rows"], list[schedule_steps.Row]), stem
    ),
    "width_grid": lambda facts, stem: width_grid_plot.draw(msgspec.convert(facts["rows"], list[width_grid.Row]), stem),
}
"""What draws a result of benchmarks/results, by how its name begins."""
OF_NETWORKS: Mapping[str, Callable[[Mapping[str, Any], Path], None]] = {
    "networks": lambda facts, stem: networks_plot.draw(msgspec.convert(facts["rows"], list[networks.Row]), stem),
    "quantizers": lambda facts, stem: quantizers_plot.draw(
        msgspec.convert(facts["rows"], list[quantizers.Row]), facts["networks"], stem
    ),
    **dict.fromkeys((f"networks_by_width_{isa}" for isa in published.X86), draw_networks_by_width),
}
"""What draws a result of docs/results, by its name."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("results", nargs="*", metavar="RESULT")
    named = parser.parse_args().results
    of_layers = {stem: draw for stem in published.COMMANDS for kind, draw in KINDS.items() if stem.startswith(kind)}
    drawn = {published.FOLDER: of_layers, published.OF_NETWORKS: OF_NETWORKS}
    known = [stem for stems in drawn.values() for stem in stems]
    if unknown := [stem for stem in named if stem not in known]:
        raise SpecError(f"cannot draw {unknown[0]!r} from its file; known: {', '.join(known)}")
    for folder, draws in drawn.items():
        for result in published.results([stem for stem in named or known if stem in draws], folder):
            draws[result.stem](result.facts, folder / result.stem)
    return 0


if __name__ == "__main__":
    report.run(main)
