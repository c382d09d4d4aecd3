"""The HTML page of `bitsynth inspect --html`: nodes, what computes each, memory by part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jinja2

from bitsynth.cli.reports.network_cells import carries, range_of, shape_of
from bitsynth.printable import one_line, show

if TYPE_CHECKING:
    from bitsynth.graph.inspect import EdgeFacts, NetworkFacts, NodeFacts
    from bitsynth.network.report import NetworkReport

_RIGHT = ("range", "MAC", "bytes")
_TEMPLATE = Path(__file__).parent / "inspect.html.j2"


class _Row(NamedTuple):
    cells: tuple[str, ...]
    note: str = ""


def page(facts: NetworkFacts, became: Mapping[str, str], report: NetworkReport | None) -> str:
    """Return the HTML page of a network; `became` has what computes each node. Names are escaped."""
    titles = ["node", "operator", "shape", "carries", "range", "MAC", "weights", "bytes", *(["by"] if became else [])]
    rows = [_Row(_cells(edge, "input", became)) for edge in facts.inputs]
    rows += [_row(node, edge, became) for node in facts.nodes for edge in node.outputs]
    memory = [(show(n.node), n.weights.packed_bytes) for n in facts.nodes if n.weights]
    memory += [("arena", report.arena_bytes)] if report else []
    most = max((size for _, size in memory), default=0) or 1
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, finalize=_finalize
    )
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    values = {"facts": facts, "titles": titles, "right": _RIGHT, "rows": rows, "memory": memory, "most": most}
    return template.render(values, arena=report is not None) + "\n"


def _finalize(value: Any) -> Any:
    """Return a value of the template for the page: text is one line of limited length."""
    return one_line(value) if isinstance(value, str) else value


def _row(node: NodeFacts, edge: EdgeFacts, became: Mapping[str, str]) -> _Row:
    return _Row(_cells(edge, node.op, became, node), _note(node))


def _note(node: NodeFacts) -> str:
    return f"{node.stays_float}; {node.change}" if node.stays_float else node.note


def _cells(edge: EdgeFacts, op: str, became: Mapping[str, str], node: NodeFacts | None = None) -> tuple[str, ...]:
    weights = node.weights if node else None
    work = f"{node.macs:,}" if node and node.macs else ""
    held = (carries(weights.edge), f"{weights.packed_bytes:,}") if weights else ("", "")
    by = [became.get(node.node, "") if node else ""] if became else []
    return show(edge.name), op, shape_of(edge), carries(edge), range_of(edge), work, *held, *by
