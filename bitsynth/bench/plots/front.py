"""The plot of a search for widths: loss against cost of every choice that was run, and the front."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from bitsynth.bench.plots.panels import COLORS, explain, legend, panels, plain, save


class FrontPoint(Protocol):
    """A choice of widths that was run."""

    @property
    def loss(self) -> float:
        """Its loss."""

    @property
    def on_front(self) -> bool:
        """Whether no other choice costs and loses at most as much."""

    @property
    def chosen(self) -> bool:
        """Whether it is the one that was written."""


def draw(points: Sequence[FrontPoint], costs: Sequence[float], names: tuple[str, str], stem: Path) -> None:
    """Write `stem`.png and `stem`.svg; `names` are the names of the cost and of the loss."""
    figure, axes = panels(1, 1, 7, 4.6)
    panel = axes[0][0]
    explain(figure, "Each point is a choice of widths that was run. Lower and further left is better.")
    others = [k for k, point in enumerate(points) if not point.on_front]
    front = sorted((k for k, point in enumerate(points) if point.on_front), key=lambda k: costs[k])
    losses = [100 * point.loss for point in points]
    _scatter(panel, others, costs, losses, color=COLORS[5], label="tried")
    xs, ys = [costs[k] for k in front], [losses[k] for k in front]
    panel.plot(xs, ys, "o-", color=COLORS[0], label="front", linewidth=1)
    chosen = [k for k, point in enumerate(points) if point.chosen]
    _scatter(panel, chosen, costs, losses, color=COLORS[4], label="chosen", marker="D", zorder=3)
    panel.set_xlabel(names[0])
    panel.set_ylabel(f"{names[1]}, %")
    panel.xaxis.set_major_formatter("{x:,.0f}")
    plain(panel)
    legend(figure, axes)
    save(figure, stem)


def _scatter(panel: Any, which: Sequence[int], xs: Sequence[float], ys: Sequence[float], **style: Any) -> None:
    """Draw some of the points."""
    if which:
        panel.scatter([xs[k] for k in which], [ys[k] for k in which], **style)
