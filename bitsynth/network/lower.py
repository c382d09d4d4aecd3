"""Lowering: fusion groups cover a graph, edges between them get formats, and each group becomes a step."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter

from bitsynth.errors import SpecError
from bitsynth.graph.ir import Graph, Names
from bitsynth.graph.operators import PRODUCTS
from bitsynth.graph.passes import run_passes
from bitsynth.graph.types import Edge
from bitsynth.layers.planning import plans_kept
from bitsynth.network.def_use import DefUse, NetworkTarget
from bitsynth.network.fusion import PATTERNS, Chooser
from bitsynth.network.fusion.codes import find_kept_layouts
from bitsynth.network.fusion.group import FusionGroup
from bitsynth.network.passes import lowering_passes
from bitsynth.network.plain import make_conversion, make_filling, plain_groups
from bitsynth.network.program import Buffer, Format, NetworkProgram, NetworkStep, alias_root, caller_format
from bitsynth.spec.layout import Layout

_MAX_PRODUCTS = 4096
"""A layer, or one of glue, takes about 13 ms to be chosen, proved and written: this many about a minute."""


def lower(graph: Graph, target: NetworkTarget) -> NetworkProgram:
    """Return the program of a graph for a target; nodes that no kernel or glue computes are plain C.

    SpecError for a network of more than `_MAX_PRODUCTS` products.
    """
    products = sum(node.op in PRODUCTS for node in graph.nodes)
    if products > _MAX_PRODUCTS:
        raise SpecError(
            f"{products:,} convolutions and matrix products, more than the {_MAX_PRODUCTS:,} that are compiled "
            "as one network; cut it in parts, and compile each"
        )
    def_use = DefUse(run_passes(graph, lowering_passes(target)), target)
    with plans_kept():
        return assemble(def_use, cover(def_use))


def assemble(def_use: DefUse, groups: Iterable[FusionGroup]) -> NetworkProgram:
    """Return the program of groups that have each node of a graph once."""
    return _Assembly(def_use, sort_groups(groups)).program()


def cover(def_use: DefUse) -> list[FusionGroup]:
    """Return groups that have each node of the graph once: the cheapest that begins with it, else plain C."""
    chooser = Chooser(def_use, PATTERNS)
    taken: set[str] = set()
    groups: list[FusionGroup] = []
    for node in def_use.graph.nodes:
        if node.name not in taken and (group := chooser.choose(node, taken)):
            taken |= set(group.names)
            groups.append(group)
    return groups + plain_groups(def_use, [n for n in def_use.graph.nodes if n.name not in taken])


def sort_groups(groups: Iterable[FusionGroup]) -> list[FusionGroup]:
    """Return groups in an order in which each comes after the groups whose edges it reads."""
    makers = {edge: group for group in groups for edge in group.outputs}
    needs = {group: {makers[e] for e in group.inputs if e in makers} for group in makers.values()}
    return list(TopologicalSorter(needs).static_order())


@dataclass
class _Assembly:
    """A program that is being put together, step by step."""

    def_use: DefUse
    groups: list[FusionGroup]
    buffers: dict[str, Buffer] = field(default_factory=dict)
    steps: list[NetworkStep] = field(default_factory=list)
    at: dict[tuple[str, Format], str] = field(default_factory=dict)
    """The buffer of an edge in a format."""
    readers: dict[str, list[FusionGroup]] = field(init=False)
    """The groups that read each edge."""
    product_count: int = 0
    """Steps that are layers or glue."""
    names: Names = field(init=False)
    """Names of buffers: the first buffer of an edge has the edge's name, the others have new ones."""

    def __post_init__(self) -> None:
        self.names = Names(self.def_use.graph.edges, self.def_use.graph.file_names)
        self.readers = defaultdict(list)
        for group in self.groups:
            for edge in dict.fromkeys(group.inputs):
                self.readers[edge].append(group)

    def program(self) -> NetworkProgram:
        graph = self.def_use.graph
        inputs = tuple(self._give(name) for name in graph.inputs)
        for group in self.groups:
            self._add(group)
        outputs = tuple(self._deliver(name, k) for k, name in enumerate(graph.outputs))
        target, steps = self.def_use.target, tuple(self.steps)
        program = NetworkProgram(graph, target.isa, target.threads, steps, self.buffers, inputs, outputs, target.cpu)
        return replace(program, alternatives=self.def_use.declines.lost)

    def _give(self, edge: str) -> str:
        """Add the buffer of an input of the network."""
        return self._buffer(Buffer(edge, self.def_use.graph.edges[edge], caller_format(self._edge(edge)), "input"))

    def _add(self, group: FusionGroup) -> None:
        buffers = {e: self.buffers[self._in_format(e, group.reads(e))] for e in group.inputs}
        for edge in group.outputs:
            result = Buffer(edge, self._edge(edge), self._choose(group, edge, buffers))
            source = buffers[group.inputs[0]] if group.inputs else result
            if group.is_alias and _is_one_memory(source, result):
                self._buffer(Buffer(edge, result.edge, result.format, alias=source.alias or source.name))
                return
            buffers[edge] = self.buffers[self._buffer(result)]
        try:
            self.steps.append(group.step(buffers))
        except SpecError as error:
            raise SpecError(f"{group.nodes[-1]}: {error}") from None
        except MemoryError as error:
            raise MemoryError(f"{group.nodes[-1]}: {error}") from None
        self.product_count += self.steps[-1].kind != "plain"
        if self.product_count > _MAX_PRODUCTS:
            raise SpecError(
                f"more than {_MAX_PRODUCTS:,} layers and glue, {group.nodes[-1]} among them, are not compiled as one "
                "network; cut it in parts, and compile each"
            )

    def _choose(self, group: FusionGroup, edge: str, given: Mapping[str, Buffer]) -> Format:
        """Return the format that most readers read, among the formats that an edge's maker writes.

        Among equals it is the format with the layout of the maker's operands, if the maker is fastest so; else the
        cheapest one for most readers; else the first. An edge that is also read under another name keeps the first
        format, as a view of it then costs nothing.
        """
        asked = Counter(f for other in self.readers[edge] for f in set(other.reads(edge)))
        if edge in self.def_use.graph.output_set and not self.def_use.carries_integers(edge):
            asked[caller_format(self._edge(edge))] += 1
        keeps = group.keeps_layout and not any(reader.is_alias for reader in self.readers[edge])
        near = {b.format.layout for b in given.values() if keeps and len(b.edge.shape) > 1} - {Layout.PLAIN}
        cheapest = Counter(other.reads(edge)[0] for other in self.readers[edge])
        return max(group.writes(edge), key=lambda f: (asked[f], f.layout in near, cheapest[f]))

    def _in_format(self, edge: str, wanted: tuple[Format, ...]) -> str:
        """Return the buffer that has an edge in one of the wanted formats; convert the edge if there is none."""
        for form in wanted:
            if (edge, form) in self.at and self._is_as_computed(self.at[edge, form]):
                return self.at[edge, form]
        source = self.buffers[edge]
        name = self._buffer(Buffer(self.names.make(f"{edge}.copy"), source.edge, wanted[0]))
        self.steps.append(make_conversion(self.def_use.graph, source, self.buffers[name]))
        return name

    def _is_as_computed(self, name: str) -> bool:
        """Return whether a buffer has the edge's integers; inputs have the caller's numbers in the file's type."""
        buffer = self.buffers[name]
        return buffer.role == "arena" or not self.def_use.carries_integers(buffer.edge.name)

    def _deliver(self, edge: str, place: int) -> str:
        """Add the buffer of an output of the network, and the step that fills it."""
        delivered = Buffer(
            self.names.make(f"{edge}.out{place}"), self._edge(edge), caller_format(self._edge(edge)), "output"
        )
        name = self._buffer(delivered)
        graph, to = self.def_use.graph, self.buffers[name]
        if edge in graph.constants:
            self.steps.append(make_filling(graph, to))
            return name
        source = self.buffers[edge]
        step = make_conversion(graph, source, to)
        is_given = self.buffers[alias_root(self.buffers, source.name)].role == "input"
        self.steps.append(replace(step, reason="it passes on the caller's numbers") if is_given else step)
        return name

    def _edge(self, name: str) -> Edge:
        return self.def_use.graph.edges[name]

    def _buffer(self, buffer: Buffer) -> str:
        self.buffers[buffer.name] = buffer
        if buffer.role != "output":
            self.at.setdefault((buffer.edge.name, buffer.format), buffer.name)
        return buffer.name


def _is_one_memory(source: Buffer, result: Buffer) -> bool:
    """Return whether elements of two buffers in one order are the same bytes in the same places."""
    if source.format == result.format:
        layout = source.format.layout
        return layout == Layout.PLAIN or layout in find_kept_layouts(source.edge.shape, result.edge.shape)
    are_in_order = all(buffer.format.lies_in_order(buffer.edge.shape) for buffer in (source, result))
    return are_in_order and source.format.has_elements_of(result.format)
