"""The HTML page of `bitsynth quantize --html`: layers, bounds, and loss against cost of every choice that was run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jinja2

from bitsynth.printable import one_line

if TYPE_CHECKING:
    from bitsynth.quantization import QuantizationReport

_TEMPLATE = Path(__file__).parent / "quantize.html.j2"
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640, 360, 70, 40
"""Sizes of the picture, and of the room for its labels."""
_TICKS = 5


class _Mark(NamedTuple):
    """A point of the picture: where it lies, its class, and what it says."""

    x: float
    y: float
    kind: str
    text: str


class _Tick(NamedTuple):
    """A tick of an axis: where it lies, and its label."""

    at: float
    text: str


class _Axis(NamedTuple):
    """A linear axis from `low` to `high`, drawn from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """Return where a value is drawn."""
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 1)

    def ticks(self, form: str) -> list[_Tick]:
        """Return ticks at equal distances."""
        values = [self.low + (self.high - self.low) * k / (_TICKS - 1) for k in range(_TICKS)]
        return [_Tick(self.place(value), form.format(value)) for value in values]


def page(report: QuantizationReport, name: str, by: str) -> str:
    """Return the HTML page of a quantization; `by` is the cost of the picture, cycles or bytes. Text is escaped."""
    costs = [trial.cycles if by == "cycles" else trial.bytes for trial in report.trials]
    losses = [100 * trial.loss for trial in report.trials]
    xs, ys = _axis(costs, _LEFT, _WIDTH - 20), _axis(losses, _HEIGHT - _BOTTOM, 15)
    marks = [
        _Mark(xs.place(cost), ys.place(loss), _kind(trial), f"{loss:.3g} %, {cost:,.0f} {by}")
        for trial, cost, loss in zip(report.trials, costs, losses, strict=True)
    ]
    front = sorted((m for m, trial in zip(marks, report.trials, strict=True) if trial.on_front), key=lambda m: m.x)
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, finalize=_finalize
    )
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    picture = {
        "width": _WIDTH,
        "height": _HEIGHT,
        "left": _LEFT,
        "floor": _HEIGHT - _BOTTOM,
        "marks": sorted(marks, key=lambda mark: mark.kind == "chosen"),
        "front": front,
        "xs": xs.ticks("{:,.0f}"),
        "ys": ys.ticks("{:.3g}"),
    }
    total = sum(layer.loss for layer in report.layers)
    return template.render(report=report, name=name, by=by, picture=picture, total=total) + "\n"


def _axis(values: list[float], start: float, end: float) -> _Axis:
    """Return the axis of values, with a little room at both ends."""
    low, high = min(values), max(values)
    room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return _Axis(max(0.0, low - room), high + room, start, end)


def _kind(trial: Any) -> str:
    return "chosen" if trial.chosen else "front" if trial.on_front else "tried"


def _finalize(value: Any) -> Any:
    """Return a value of the template for the page: text is one line of limited length."""
    return one_line(value) if isinstance(value, str) else value
