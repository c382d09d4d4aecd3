"""Choice between fusion groups that begin with one node: the one whose whole has the fewest predicted cycles.

A whole is a cover of all nodes that any of the compared groups has: the group, and what computes the nodes that it
leaves over, by the first pattern that matches or in plain C. Ties go to the pattern that comes first, which is wider.

Given:   %acc = conv(%x, w); %sum = add(batch_norm(%acc), %shortcut); %codes = quantize(%sum)
Result:  one layer (thresholds or a float32 formula with a residual), because the layer of %acc alone leaves three
         nodes: 4 bytes an element written and read again, another call, and an affine formula in float64

Proposals are expensive, as formulas are searched and proved. Each pattern therefore has a lower bound of the cycles of
any whole with a group of it; if the bound is no less than a complete whole, its groups are not searched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from bitsynth.errors import SpecError
from bitsynth.graph.ir import Node
from bitsynth.graph.operators import PRODUCTS
from bitsynth.network.declines import Alternative, Stage
from bitsynth.network.def_use import DefUse
from bitsynth.network.formulas.epilogues import is_long
from bitsynth.network.fusion.codes import operand_of
from bitsynth.network.fusion.cost import (
    AFFINE,
    CALL_CYCLES,
    CURVE,
    GroupCost,
    Operations,
    Processor,
    cost_of,
    plain_work_from_each,
    processor_of,
)
from bitsynth.network.fusion.group import FusionGroup
from bitsynth.network.fusion.layers import find_product_and_form
from bitsynth.network.plain import plain_groups
from bitsynth.network.program import plain_format

Matcher = Callable[[DefUse, Node], FusionGroup | None]
"""Return the group that begins with a node, its first in the graph's order; None if the pattern does not match."""


@dataclass(frozen=True)
class Whole:
    """A cover of some nodes.

    Args:
        groups: The group that is compared, then the groups of the nodes that it leaves over.
        costs: Their predicted cycles.
        conversions: Cycles of conversions of edges between them.
    """

    groups: tuple[FusionGroup, ...]
    costs: tuple[GroupCost, ...]
    conversions: float = 0.0

    @property
    def group(self) -> FusionGroup:
        """The group that is compared."""
        return self.groups[0]

    @property
    def names(self) -> frozenset[str]:
        """The nodes that are covered."""
        return frozenset(name for group in self.groups for name in group.names)

    @property
    def cycles(self) -> float:
        """Cycles of everything."""
        return sum(cost.cycles for cost in self.costs) + self.conversions


@dataclass(frozen=True)
class LowerBound:
    """The bounds on a pattern's groups that are known before they are searched.

    Args:
        cycles: The fewest cycles of a whole with a group of the pattern.
        nodes: The nodes that the group has, if that is known: the whole that it is compared with has them too.
    """

    cycles: float
    nodes: frozenset[str] = frozenset()


FindBound = Callable[[DefUse, Node, Whole], LowerBound | None]
"""Return the bound of a pattern at a node where a whole is known; None if the pattern cannot match there then."""


def bound_narrower(def_use: DefUse, node: Node, best: Whole) -> LowerBound | None:
    """Return the bound of groups with fewer nodes than the best, which leave one of its inner edges in memory.

    The edge is written and read, another step is called, and if it has no codes, the step is an affine formula at
    least, a table of breakpoints, or plain C of the nodes that are left.
    """
    group, processor = best.group, processor_of(def_use.target)
    plain = plain_work_from_each(def_use.graph, group.nodes)
    cuts = [_cut_cycles(def_use, processor, group, place, plain[place + 1]) for place in range(len(group.nodes) - 1)]
    if not cuts:
        return None
    return LowerBound(best.costs[0].floor + CALL_CYCLES + min(cuts))


def _cut_cycles(def_use: DefUse, processor: Processor, group: FusionGroup, place: int, plain: Operations) -> float:
    """Return the fewest cycles of the nodes after a place in a group, as a step of their own, without its call.

    `plain` is their work in plain C.
    """
    graph = def_use.graph
    edge, size = graph.edges[group.nodes[place].outputs[0]], math.prod(graph.edges[group.outputs[0]].shape)
    if operand_of(edge):
        return 2 * processor.transfer(math.prod(edge.shape))
    moved = 2 * processor.transfer(plain_format(edge, graph.reference).bytes(edge.shape))
    works = plain, AFFINE.times(size), CURVE.times(size)
    return processor.together(min(map(processor.cycles, works)), moved)


def bound_many_levels(def_use: DefUse, node: Node, best: Whole) -> LowerBound | None:
    """Return the bound of a layer with many thresholds: each takes a comparison an element."""
    product_and_form = find_product_and_form(def_use, node)
    if product_and_form is None or not is_long(product_and_form[2]):
        return None
    product, chain, form = product_and_form
    processor, edge = processor_of(def_use.target), def_use.graph.edges[chain.end]
    work = Operations(words=form.epilogue.codes[1]).times(math.prod(edge.shape))
    cycles = best.costs[0].sums + processor.cycles(work) + CALL_CYCLES
    return LowerBound(cycles, frozenset(n.name for n in (*product.nodes, *chain.nodes)))


def bound_curve(def_use: DefUse, node: Node, best: Whole) -> LowerBound | None:
    """Return the bound of tables of breakpoints: the operations of an element are known."""
    size = math.prod(def_use.graph.edges[best.group.outputs[0]].shape)
    processor = processor_of(def_use.target)
    return LowerBound(processor.together(processor.cycles(CURVE.times(size)), 0.0) + CALL_CYCLES)


def exclude(def_use: DefUse, node: Node, best: Whole) -> LowerBound | None:
    """Return None: the pattern is for nodes that no pattern before it takes."""
    return None


def always(def_use: DefUse, node: Node) -> bool:
    """Return True: the pattern itself looks at the node."""
    return True


def may_begin_layer(def_use: DefUse, node: Node) -> bool:
    """Return whether a node is a product, or a reshape that may flatten an image for one."""
    return node.op in PRODUCTS or node.op == "reshape"


def is_not_product(def_use: DefUse, node: Node) -> bool:
    """Return whether a node is none."""
    return node.op not in PRODUCTS


@dataclass(frozen=True)
class Pattern:
    """A fusion pattern.

    Args:
        name: The kind of its groups, in words.
        match: Searches the group that begins with a node.
        bound: Finds the bound of its groups at a node where a whole is known.
        applies: Returns whether a group may begin with a node, by its operator and operands alone; a pattern that does
            not apply has no reason why it did not match.
    """

    name: str
    match: Matcher
    bound: FindBound = bound_narrower
    applies: Callable[[DefUse, Node], bool] = always


@dataclass(frozen=True, eq=False)
class Chooser:
    """Chooses groups of a graph, node by node.

    Args:
        def_use: The graph.
        patterns: In the order in which they are tried.
    """

    def_use: DefUse
    patterns: tuple[Pattern, ...]
    _proposals: dict[tuple[str, str], FusionGroup | None] = field(default_factory=dict, repr=False)

    def choose(self, node: Node, taken: set[str]) -> FusionGroup | None:
        """Return the group that begins with a node, without nodes that are `taken`; None if no pattern matches."""
        best: Whole | None = None
        lost: list[tuple[Pattern, float, bool]] = []
        winner: Pattern | None = None
        for pattern in self.patterns:
            if not pattern.applies(self.def_use, node):
                continue
            if best is None:
                group = self._propose(pattern, node, taken)
                if group is not None:
                    best, winner = self._whole([group]), pattern
                continue
            bound = pattern.bound(self.def_use, node, best)
            if bound is None:
                continue
            best = self._complete(best, bound.nodes, taken)
            is_wider = len(bound.nodes) > len(best.group.nodes)
            if not self._wins(bound.cycles, best.cycles, is_wider=is_wider):
                lost.append((pattern, bound.cycles, True))
                continue
            group = self._propose(pattern, node, taken)
            if group is None or (group.names == best.group.names and type(group) is type(best.group)):
                continue
            best, other = self._complete_both(best, self._whole([group]), taken)
            assert winner
            if self._wins(other.cycles, best.cycles, is_wider=len(group.nodes) > len(best.group.nodes)):
                lost.append((winner, best.cycles, False))
                best, winner = other, pattern
            else:
                lost.append((pattern, other.cycles, False))
        if best is None:
            return None
        self.def_use.declines.lost[node.name] = tuple(
            Alternative(pattern.name, round(cycles / best.cycles, 2), is_bound)
            for pattern, cycles, is_bound in lost
            if best.cycles
        )
        return best.group

    def _wins(self, cycles: float, best: float, *, is_wider: bool) -> bool:
        """Return whether a whole is better than the best, or a wider one that is tied with it."""
        if is_wider:
            return not self._wins(best, cycles, is_wider=False)
        tie = _TIE_CYCLES * processor_of(self.def_use.target).slower
        return cycles < best - max(_TIE_SHARE * best, tie)

    def _propose(self, pattern: Pattern, node: Node, taken: set[str] | frozenset[str]) -> FusionGroup | None:
        """Return the group of a pattern that begins with a node; None if there is none, or it has nodes `taken`."""
        key = pattern.name, node.name
        if key not in self._proposals:
            try:
                fits = pattern.applies(self.def_use, node)
                self._proposals[key] = pattern.match(self.def_use, node) if fits else None
            except SpecError as error:  # Numbers that a layer or glue does not hold: another group takes the nodes.
                self.def_use.decline(node, Stage.FORMULA, str(error))
                self._proposals[key] = None
        group = self._proposals[key]
        if group is not None and not taken.isdisjoint(group.names):
            self.def_use.decline(node, Stage.FORMULA, "another group has a node that it would be fused with")
            return None
        return group

    def _complete_both(self, one: Whole, other: Whole, taken: set[str]) -> tuple[Whole, Whole]:
        """Return both wholes with the nodes of both: what completes one may have more nodes than the other has."""
        for _ in range(_MAX_COMPLETIONS):
            one = self._complete(one, other.names, taken)
            other = self._complete(other, one.names, taken)
            if one.names == other.names:
                break
        return one, other

    def _complete(self, whole: Whole, names: frozenset[str], taken: set[str]) -> Whole:
        """Return the whole with groups for the nodes of these names that it does not cover."""
        covered = set(whole.names)
        order, nodes = self.def_use.order, self.def_use.graph.nodes
        groups: list[FusionGroup] = []
        left: list[Node] = []
        for name in sorted(names - covered, key=lambda name: order[name]):
            if name in covered:
                continue
            group = self._first(nodes[order[name]], taken | covered)
            if group is None:
                left.append(nodes[order[name]])
            else:
                covered |= set(group.names)
                groups.append(group)
        if not groups and not left:
            return whole
        left = [node for node in left if node.name not in covered]
        return self._whole([*whole.groups, *groups, *plain_groups(self.def_use, left)])

    def _first(self, node: Node, taken: set[str]) -> FusionGroup | None:
        """Return the group of the first pattern that matches a node."""
        groups = (self._propose(pattern, node, taken) for pattern in self.patterns)
        return next((group for group in groups if group is not None), None)

    def _whole(self, groups: Iterable[FusionGroup]) -> Whole:
        groups = tuple(groups)
        return Whole(groups, tuple(cost_of(g, self.def_use) for g in groups), self._conversion_cycles(groups))

    def _conversion_cycles(self, groups: tuple[FusionGroup, ...]) -> float:
        """Return the cycles of conversions of edges that one group writes in no format that another reads."""
        edges, processor = self.def_use.graph.edges, processor_of(self.def_use.target)
        written = {edge: group.writes(edge) for group in groups for edge in group.outputs}
        cycles = 0.0
        for group in groups:
            for edge in group.inputs:
                if edge in written and set(written[edge]).isdisjoint(reads := group.reads(edge)):
                    sizes = (f.bytes(edges[edge].shape) for f in (written[edge][0], reads[0]))
                    cycles += CALL_CYCLES + sum(map(processor.transfer, sizes))
        return cycles


_TIE_SHARE = 0.1
"""Wholes are tied if they differ by less than this share of the cycles of the wider one."""
_TIE_CYCLES = 1000.0
"""Wholes are tied if they differ by fewer cycles: calls and units that are not full are not predicted so exactly.

Five small random networks in which a layer lost its epilogue for fewer predicted cycles took 0.95 to 1.04 of the time.
"""
_MAX_COMPLETIONS = 4
"""Rounds in which two wholes get each other's nodes: each round has more of them, or is the last."""
