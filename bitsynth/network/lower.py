"""Lowering: a graph is covered by regions, edges between them get formats, and regions become steps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from graphlib import TopologicalSorter

from bitsynth.errors import SpecError
from bitsynth.graph.ir import Graph, Node
from bitsynth.graph.names import Names
from bitsynth.graph.operators import PRODUCTS
from bitsynth.graph.passes import run_passes
from bitsynth.graph.types import Edge
from bitsynth.layers.planning import plans_kept
from bitsynth.network.passes import lowering_passes
from bitsynth.network.plain import conversion, filled, plain_regions
from bitsynth.network.program import PLAIN, Buffer, Format, NetworkProgram, NetworkStep, caller_format
from bitsynth.network.regions import MATCHERS
from bitsynth.network.regions.codes import kept_layouts
from bitsynth.network.regions.region import Region
from bitsynth.network.wiring import NetworkTarget, Wiring

_MOST_PRODUCTS = 4096
"""A layer, or one of glue, takes about 13 ms to be chosen, proved and written: this many about a minute."""


def lower(graph: Graph, target: NetworkTarget) -> NetworkProgram:
    """The program of a graph for a target; what no kernel or glue computes is plain C.

    SpecError for a network of more than `_MOST_PRODUCTS` products.
    """
    products = sum(node.op in PRODUCTS for node in graph.nodes)
    if products > _MOST_PRODUCTS:
        raise SpecError(
            f"{products:,} convolutions and matrix products, more than the {_MOST_PRODUCTS:,} that are compiled "
            "as one network; cut it in parts, and compile each"
        )
    wiring = Wiring(run_passes(graph, lowering_passes(target)), target)
    with plans_kept():
        assembly = _Assembly(wiring, ordered(cover(wiring)))
        return assembly.program()


def cover(wiring: Wiring) -> list[Region]:
    """Regions that have each node of the graph once: of the matchers the first that takes it, else plain C."""
    taken: set[str] = set()
    made: list[Region] = []
    for node in wiring.graph.nodes:
        if node.name not in taken and (region := _first(wiring, node, taken)):
            taken |= {n.name for n in region.nodes}
            made.append(region)
    return made + plain_regions(wiring, [n for n in wiring.graph.nodes if n.name not in taken])


def _first(wiring: Wiring, node: Node, taken: set[str]) -> Region | None:
    for match in MATCHERS:
        try:
            region = match(wiring, node)
        except SpecError:  # Numbers that a layer or glue does not hold: another region, or plain C, takes the node.
            continue
        if region is not None and not any(n.name in taken for n in region.nodes):
            return region
    return None


def ordered(regions: Iterable[Region]) -> list[Region]:
    """Regions after those whose edges they read."""
    makers = {edge: region for region in regions for edge in region.outputs}
    needs = {region: {makers[e] for e in region.inputs if e in makers} for region in makers.values()}
    return list(TopologicalSorter(needs).static_order())


@dataclass
class _Assembly:
    """A program in the making."""

    wiring: Wiring
    regions: list[Region]
    buffers: dict[str, Buffer] = field(default_factory=dict)
    steps: list[NetworkStep] = field(default_factory=list)
    at: dict[tuple[str, Format], str] = field(default_factory=dict)
    """The buffer that has an edge in a format."""
    readers: dict[str, list[Region]] = field(init=False)
    """The regions that read each edge."""
    made: int = 0
    """Steps that are layers or glue."""
    names: Names = field(init=False)
    """The source of names of buffers: the first buffer of an edge has the edge's name, the others have new ones."""

    def __post_init__(self) -> None:
        self.names = Names(self.wiring.graph.edges, self.wiring.graph.file_names)
        self.readers = defaultdict(list)
        for region in self.regions:
            for edge in dict.fromkeys(region.inputs):
                self.readers[edge].append(region)

    def program(self) -> NetworkProgram:
        graph = self.wiring.graph
        inputs = tuple(self._give(name) for name in graph.inputs)
        for region in self.regions:
            self._add(region)
        outputs = tuple(self._deliver(name, k) for k, name in enumerate(graph.outputs))
        target, steps = self.wiring.target, tuple(self.steps)
        return NetworkProgram(graph, target.isa, target.threads, steps, self.buffers, inputs, outputs, target.cpu)

    def _give(self, edge: str) -> str:
        """The buffer of an input of the network."""
        return self._buffer(Buffer(edge, self.wiring.graph.edges[edge], caller_format(self._edge(edge)), "input"))

    def _add(self, region: Region) -> None:
        buffers = {e: self.buffers[self._in_format(e, region.reads(e))] for e in region.inputs}
        for edge in region.outputs:
            made = Buffer(edge, self._edge(edge), self._chosen(region, edge))
            source = buffers[region.inputs[0]] if region.inputs else made
            if region.is_alias and source.format == made.format and _is_one_memory(source, made):
                self._buffer(Buffer(edge, made.edge, made.format, alias=source.name))
                return
            buffers[edge] = self.buffers[self._buffer(made)]
        try:
            self.steps.append(region.step(buffers))
        except SpecError as error:
            raise SpecError(f"{region.nodes[-1]}: {error}") from None
        except MemoryError as error:
            raise MemoryError(f"{region.nodes[-1]}: {error}") from None
        self.made += self.steps[-1].kind != "plain"
        if self.made > _MOST_PRODUCTS:
            raise SpecError(
                f"more than {_MOST_PRODUCTS:,} layers and glue, {region.nodes[-1]} among them, are not compiled as one "
                "network; cut it in parts, and compile each"
            )

    def _chosen(self, region: Region, edge: str) -> Format:
        """The first format that the maker of an edge writes and most of its readers read."""
        asked = Counter(f for other in self.readers[edge] for f in set(other.reads(edge)))
        if edge in self.wiring.graph.output_set and not self.wiring.carries_integers(edge):
            asked[caller_format(self._edge(edge))] += 1
        return max(region.writes(edge), key=lambda f: asked[f])

    def _in_format(self, edge: str, wanted: tuple[Format, ...]) -> str:
        """The buffer that has an edge in one of the wanted formats: converted if there is none."""
        for form in wanted:
            if (edge, form) in self.at and self._is_as_computed(self.at[edge, form]):
                return self.at[edge, form]
        source = self.buffers[edge]
        name = self._buffer(Buffer(self.names.make(f"{edge}.copy"), source.edge, wanted[0]))
        self.steps.append(conversion(self.wiring.graph, source, self.buffers[name]))
        return name

    def _is_as_computed(self, name: str) -> bool:
        """Whether a buffer has the edge's integers: what the caller gives are numbers in the file's type."""
        buffer = self.buffers[name]
        return buffer.role == "arena" or not self.wiring.carries_integers(buffer.edge.name)

    def _deliver(self, edge: str, place: int) -> str:
        """The buffer of an output of the network, which the last step fills."""
        made = Buffer(
            self.names.make(f"{edge}.out{place}"), self._edge(edge), caller_format(self._edge(edge)), "output"
        )
        name = self._buffer(made)
        graph, to = self.wiring.graph, self.buffers[name]
        self.steps.append(filled(graph, to) if edge in graph.constants else conversion(graph, self.buffers[edge], to))
        return name

    def _edge(self, name: str) -> Edge:
        return self.wiring.graph.edges[name]

    def _buffer(self, buffer: Buffer) -> str:
        self.buffers[buffer.name] = buffer
        if buffer.role != "output":
            self.at.setdefault((buffer.edge.name, buffer.format), buffer.name)
        return buffer.name


def _is_one_memory(source: Buffer, made: Buffer) -> bool:
    """Whether elements of one format and order lie in the same places."""
    layout = source.format.layout
    return layout == PLAIN or layout in kept_layouts(source.edge.shape, made.edge.shape)
