"""The report of `bitsynth tune`: a row for each layer, and where its schedule is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec
from rich.text import Text

from bitsynth.cli import output

if TYPE_CHECKING:
    from bitsynth.tune.outcome import Share, TuningRun


def show(outcomes: Mapping[str, TuningRun], as_json: bool) -> None:
    """Print a table, or (`as_json`) a list of objects."""
    if as_json:
        output.write_json([{"layer": name, **_fields(x)} for name, x in outcomes.items()])
        return
    # A row a layer.
    numbers = ("default ms", "tuned ms", "ratio", "trials", "failed")
    table = output.table("layer", *numbers, "schedule", right=numbers, whole=("layer",))
    for name, x in outcomes.items():
        t = x.result.timing
        times = f"{t.default_nanoseconds / 1e6:.4f}", f"{t.nanoseconds / 1e6:.4f}", f"{t.ratio:.3f}"
        table.add_row(name, *times, str(x.result.trials), str(len(x.result.failures)), str(x.result.schedule))
    output.write(table, "")
    # What failed, and what each board did.
    for name, x in outcomes.items():
        for why in dict.fromkeys(x.result.failures):
            output.warning(f"{name}: a trial failed: {why}")
        for share in x.shares:
            _show_share(name, share)
    # Where it is kept.
    for path in sorted({x.stored for x in outcomes.values()}):
        output.write(Text(f"wrote  {path}"))
    for path in sorted({x.study for x in outcomes.values()}):
        output.write(Text(f"study  {path}"))


def _show_share(name: str, share: Share) -> None:
    output.write(f"{name}  {share.host}, {output.count(share.trials, 'trial')}: {share.after}")
    if share.after.throttled not in ("", "none"):
        output.warning(f"{name}: {share.host} was held back: {share.after.throttled}")


def _fields(x: TuningRun) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(x.tuned)
    figures = {"ratio": x.result.timing.ratio, "trials": x.result.trials, "failures": x.result.failures}
    boards = [{**asdict(s), "before": str(s.before), "after": str(s.after)} for s in x.shares]
    return {
        **built,
        **figures,
        "stored": str(x.stored),
        "study": str(x.study),
        **({"boards": boards} if boards else {}),
    }
