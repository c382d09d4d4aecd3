"""Which nodes plain C does in one loop: what is done element by element with what was made there alone."""

from __future__ import annotations

from collections.abc import Sequence

from bitsynth.graph.ir import Node
from bitsynth.graph.operators import TABLE
from bitsynth.network.plain.region import PlainRegion
from bitsynth.network.regions.region import Region
from bitsynth.network.wiring import Wiring

_EACH = ("elementwise", "step")
_BEFORE = ("product", "pool", "reduction")


def plain_regions(wiring: Wiring, nodes: Sequence[Node]) -> list[Region]:
    """Regions that have each of the nodes once: the last first, with as many before it as its loop can do."""
    left = {node.name: node for node in nodes}
    made: list[Region] = []
    for node in reversed(nodes):
        if node.name in left:
            group = _group(wiring, node, left)
            for other in group:
                del left[other.name]
            made.append(PlainRegion(wiring, *group))
    return made[::-1]


def _group(wiring: Wiring, last: Node, left: dict[str, Node]) -> list[Node]:
    """A node with what is done element by element for it alone, and one node of another kind before those."""
    group = {last.name: last}
    if TABLE[last.op].kind not in _EACH:
        return [last]
    while more := next((n for n in _makers(wiring, group, left) if TABLE[n.op].kind in _EACH), None):
        group[more.name] = more
    first = [n for n in _makers(wiring, group, left) if TABLE[n.op].kind in _BEFORE and len(n.outputs) == 1][:1]
    return first + sorted(group.values(), key=lambda n: wiring.order[n.name])


def _makers(wiring: Wiring, group: dict[str, Node], left: dict[str, Node]) -> list[Node]:
    """Nodes whose result is of the group's shape, and read by the group alone."""
    edges = wiring.graph.edges
    (shape,) = {edges[n.outputs[0]].shape for n in group.values()}
    made = {wiring.makers[e].name for n in group.values() for e in n.inputs if e in wiring.makers}
    return [
        left[name]
        for name in sorted(made - group.keys())
        if name in left
        and edges[left[name].outputs[0]].shape == shape
        and all(n.name in group for e in left[name].outputs for n in wiring.readers[e])
        and not set(left[name].outputs) & set(wiring.graph.outputs)
    ]
