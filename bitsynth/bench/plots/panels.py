"""The parts that all plots share: how a plot is begun, looks and is saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")


def panels(rows: int, columns: int, width: float, height: float, **grid: Any) -> tuple[Any, Any]:
    """A figure of `width` by `height` inches, and its axes by row and column."""
    mpl.rcParams.update({"svg.hashsalt": "bitsynth", "font.size": 10, "axes.axisbelow": True})
    return plt.subplots(rows, columns, figsize=(width, height), layout="constrained", squeeze=False, **grid)


def plain(axes: Any, **grid: Any) -> None:
    """Give the axes a light grid and no frame."""
    axes.grid(color="#dddddd", linewidth=0.8, **grid)
    axes.spines[["top", "right"]].set_visible(False)


def save(figure: Any, stem: Path) -> None:
    """Write `stem`.png and `stem`.svg, the same bytes for the same figure, and forget the figure."""
    figure.savefig(f"{stem}.png", dpi=150)
    figure.savefig(f"{stem}.svg", metadata={"Date": None})
    plt.close(figure)
