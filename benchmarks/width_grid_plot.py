"""Two panels over the widths: speed of the layer, and seconds of synthesis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitsynth.bench.plots.panels import draw_bars, explain, panels, plain, save


def draw(rows: Sequence[Any], stem: Path) -> None:
    """Write `stem`.png and `stem`.svg."""
    figure, ((left, right),) = panels(1, 2, 13, 4.4)
    _bars(left, rows, "gmac_per_second", "{:.0f}")
    left.set_title("Layer C2, default schedule: billions of multiply-accumulates a second", loc="left")
    _bars(right, rows, "synthesis_seconds", "{:.1f}")
    right.set_title("Synthesis of its kernel, cold, all methods: seconds", loc="left")
    left.legend(title="weights", loc="upper right", frameon=False)
    explain(
        figure,
        "Left, higher is better: bits of weights cost more speed than bits of activations. Right, lower is better: "
        "more bits take longer to solve.",
    )
    save(figure, stem)


def _bars(axes: Any, rows: Sequence[Any], what: str, form: str) -> None:
    """A group an activation width, a bar a weight width."""
    acts, weights = (sorted({getattr(r, side) for r in rows}) for side in ("act_bits", "w_bits"))
    for n, bits in enumerate(weights):
        some = [r for r in rows if r.w_bits == bits]
        heights = [getattr(r, what) for r in some]
        groups = [acts.index(r.act_bits) for r in some]
        bars = draw_bars(axes, groups, heights, n, len(weights), label=f"{bits}-bit")
        axes.bar_label(bars, [form.format(h) for h in heights], padding=2, fontsize=8)
    axes.set_xticks(range(len(acts)), [f"{bits}-bit activations" for bits in acts])
    axes.margins(y=0.12)
    plain(axes)
