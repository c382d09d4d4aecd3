"""Bars in groups, and bars of how many times faster something is."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox

from bitsynth.bench.statistics import Summary

_WIDTH = 0.8
"""The width of a group; the next one is 1 away."""


def draw_bars(axes: Any, groups: Sequence[int], heights: Any, n: int, of: int, **more: Any) -> Any:
    """Draw the `n`-th bar of `of` in each of `groups`."""
    width = _WIDTH / of
    xs = np.asarray(groups) + (n + 0.5) * width - _WIDTH / 2
    return axes.bar(xs, heights, width * 0.94, color=COLORS[n % len(COLORS)], **more)


def times_faster(axes: Any, times: Sequence[Summary], label: str, n: int, of: int) -> Any:
    """Draw and return the `n`-th bar of `of` in every group: up from 1 if it is faster, down if it is not."""
    middle = np.array([t.median for t in times])
    spread = [middle - [t.low for t in times], [t.high for t in times] - middle]
    lines = {"ecolor": "black", "elinewidth": 0.8}
    bars = draw_bars(axes, range(len(times)), middle - 1, n, of, bottom=1, label=label, yerr=spread, error_kw=lines)
    axes.axhline(1, color="black", linewidth=1)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    return bars


mpl.use("Agg")

COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")
"""The colours of series, one each."""
MAX_SERIES = 5
"""The most series in a panel: readers cannot distinguish more colours."""
_LETTERS_AN_INCH = 13
"""Letters of a sentence that fit on an inch of a figure's width."""


_DOT = 5
"""Half the width of a point, in pixels."""
_PLAIN = {"facecolor": "white", "edgecolor": "none", "pad": 0.4}
"""Behind a point's text: lines that cross it are hidden."""
_LABEL_PLACES = {
    (6, 0): ("left", "center"),
    (-6, 0): ("right", "center"),
    (0, 6): ("center", "bottom"),
    (0, -6): ("center", "top"),
    (4, 4): ("left", "bottom"),
    (4, -4): ("left", "top"),
    (-4, 4): ("right", "bottom"),
    (-4, -4): ("right", "top"),
}
"""Where a point's text may be, in points from it, and which of its sides is there; the best place first."""


def panels(rows: int, columns: int, width: float, height: float, **grid: Any) -> tuple[Any, Any]:
    """Return a figure of `width` by `height` inches, and its axes by row and column."""
    mpl.rcParams.update({"svg.hashsalt": "bitsynth", "font.size": 10, "axes.axisbelow": True})
    return plt.subplots(rows, columns, figsize=(width, height), layout="constrained", squeeze=False, **grid)


def plain(axes: Any, **grid: Any) -> None:
    """Give the axes a light grid and no frame."""
    axes.grid(color="#dddddd", linewidth=0.8, **grid)
    axes.spines[["top", "right"]].set_visible(False)


def explain(figure: Any, text: str) -> None:
    """Put `text`, a sentence that says what to see, above the panels."""
    wide = int(figure.get_figwidth() * _LETTERS_AN_INCH)
    figure.suptitle(textwrap.fill(text, wide), x=0.01, ha="left", fontsize=10)


def legend(figure: Any, axes: Any, columns: int = MAX_SERIES) -> None:
    """Put one legend below the panels: each label of any of `axes` once."""
    legends = (panel.get_legend_handles_labels() for panel in axes.flat)
    handles = {label: handle for some, labels in legends for handle, label in zip(some, labels, strict=True)}
    if handles:
        figure.legend(
            [*handles.values()], [*handles], loc="outside lower left", ncols=min(len(handles), columns), frameon=False
        )


def label_points(axes: Any, points: Sequence[tuple[float, float, str]]) -> None:
    """Write each point's text next to it, where it lies inside the axes and on no other point or text.

    A text for which there is no such place is left out. To be called when the figure has everything else.
    """
    axes.figure.draw_without_rendering()
    room = axes.get_window_extent()
    dots = axes.transData.transform([(x, y) for x, y, _ in points])
    taken = [Bbox.from_bounds(x - _DOT, y - _DOT, 2 * _DOT, 2 * _DOT) for x, y in dots]
    for x, y, text in points:
        for place, (horizontal, vertical) in _LABEL_PLACES.items():
            label = axes.annotate(
                text,
                (x, y),
                xytext=place,
                textcoords="offset points",
                ha=horizontal,
                va=vertical,
                fontsize=8,
                bbox=_PLAIN,
            )
            box = label.get_window_extent()
            is_inside = room.x0 <= box.x0 and box.x1 <= room.x1 and room.y0 <= box.y0 and box.y1 <= room.y1
            if is_inside and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            label.remove()


def save(figure: Any, stem: Path) -> None:
    """Write `stem`.png and `stem`.svg, the same bytes for the same figure, and forget the figure.

    ValueError if a panel has more than MAX_SERIES series, or two of one colour.
    """
    for axes in figure.axes:
        colors = dict(_series(axes))
        if len(colors) > MAX_SERIES or len(set(colors.values())) < len(colors):
            raise ValueError(f"{stem.name} needs a colour for each of at most {MAX_SERIES} series, not {colors}")
    figure.savefig(f"{stem}.png", dpi=150)
    figure.savefig(f"{stem}.svg", metadata={"Date": None})
    plt.close(figure)


def _series(axes: Any) -> Iterator[tuple[str, str]]:
    """Yield the label and the colour of each series of the axes: labelled bars, points, and lines through points."""
    handles, labels = axes.get_legend_handles_labels()
    for handle, label in zip(handles, labels, strict=True):
        color: Any
        if isinstance(handle, BarContainer):
            color = handle[0].get_facecolor()
        elif isinstance(handle, PathCollection):
            color = handle.get_facecolor()[0]
        elif isinstance(handle, Line2D) and handle.get_marker() != "None":
            color = handle.get_color()
        else:
            continue
        yield label, to_hex(color)
