"""Fusion of plain C: elementwise nodes share the loop of the node whose result they alone read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bitsynth.graph.ir import Node
from bitsynth.graph.operators import TABLE
from bitsynth.network.def_use import DefUse
from bitsynth.network.fusion.group import FusionGroup
from bitsynth.network.plain.group import PlainGroup

_EACH = ("elementwise", "step")
_BEFORE = ("product", "pool", "reduction")


def plain_groups(def_use: DefUse, nodes: Sequence[Node]) -> list[FusionGroup]:
    """Return groups that have each of the nodes once: the last nodes first, with all makers that their loop holds."""
    left = {node.name: node for node in nodes}
    groups: list[FusionGroup] = []
    for node in reversed(nodes):
        if node.name in left:
            group = _group(def_use, node, left)
            for other in group:
                del left[other.name]
            groups.append(PlainGroup(def_use, *group))
    return groups[::-1]


def _group(def_use: DefUse, last: Node, left: dict[str, Node]) -> list[Node]:
    """Return a node with the elementwise nodes that serve it alone, and one node of another kind before these."""
    if TABLE[last.op].kind not in _EACH:
        return [last]
    group, unseen = {last.name: last}, [last]
    while unseen:
        for node in _makers(def_use, [unseen.pop()], group, left):
            if TABLE[node.op].kind in _EACH:
                group[node.name] = node
                unseen.append(node)
    every = _makers(def_use, group.values(), group, left)
    first = [n for n in every if TABLE[n.op].kind in _BEFORE and len(n.outputs) == 1][:1]
    return first + sorted(group.values(), key=lambda n: def_use.order[n.name])


def _makers(def_use: DefUse, readers: Iterable[Node], group: dict[str, Node], left: dict[str, Node]) -> list[Node]:
    """Return the makers of inputs of some nodes that have the group's shape and serve the group alone."""
    edges = def_use.graph.edges
    shape = edges[next(iter(group.values())).outputs[0]].shape
    names = {def_use.makers[e].name for n in readers for e in n.inputs if e in def_use.makers}
    return [
        left[name]
        for name in sorted(names - group.keys())
        if name in left
        and edges[left[name].outputs[0]].shape == shape
        and all(n.name in group for e in left[name].outputs for n in def_use.readers[e])
        and not def_use.graph.output_set.intersection(left[name].outputs)
    ]
