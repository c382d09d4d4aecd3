"""Certificates of small programs, and what the checker says of them."""

from pathlib import Path
from typing import Any

from bitsynth.graph.ir import Graph
from bitsynth.graph.read import InputCodes
from bitsynth.graph.types import Integers
from bitsynth.network.arena import plan_arena
from bitsynth.network.certificate import certificate, checker, digest
from bitsynth.network.certificate.arrays import encode_array
from bitsynth.network.certificate.records import JsonValue, to_dict
from bitsynth.network.def_use import DefUse, NetworkTarget
from bitsynth.network.lower import cover, sort_groups
from bitsynth.network.program import Buffer, NetworkProgram
from bitsynth.network.reading import Reading
from bitsynth.network.run import Network


def reading_of(graph: Graph) -> Reading:
    """Return how a file of this graph would have been read: inputs that are codes of floats are declared to be."""
    kinds = [edge.type for edge in graph.edges_of(graph.inputs) if edge.is_float and isinstance(edge.type, Integers)]
    codes = [InputCodes(kind.bits, float(kind.scale.flat[0]), kind.encoding.value) for kind in kinds[:1]]
    return Reading(codes=codes[0] if codes else None)


def encode_json_array(numbers: Any) -> JsonValue:
    """Return the JSON of an array in a certificate."""
    return to_dict(encode_array(numbers))


def certified(graph: Graph, isa: str = "avx2") -> dict[str, Any]:
    """The certificate of a graph's groups."""
    program = program_of(graph, isa)
    return certificate(program, plan_arena(program), {}, reading_of(graph))


def program_of(graph: Graph, isa: str = "avx2") -> NetworkProgram:
    """A graph's groups, from its inputs to its outputs, with no conversions around."""
    groups = sort_groups(cover(DefUse(graph, NetworkTarget(isa))))
    buffers: dict[str, Buffer] = {}
    for group in groups:
        reads = {e: group.reads(e)[0] for e in group.inputs if e not in buffers}
        for edge, form in {**reads, **{e: group.writes(e)[0] for e in group.outputs}}.items():
            role = "input" if edge in graph.inputs else "output" if edge in graph.outputs else "arena"
            buffers[edge] = Buffer(edge, graph.edges[edge], form, role)
    steps = tuple(group.step(buffers) for group in groups)
    return NetworkProgram(graph, isa, 1, steps, buffers, graph.inputs, graph.outputs)


def failure(certificate: dict[str, Any], folder: Path = Path()) -> str:
    """What the checker says against a certificate whose digest is made anew; "" if all holds."""
    try:
        checker.check({**certificate, "digest": digest(certificate)}, folder)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def written(graph: Graph, folder: Path) -> Path:
    """The folder, in which a library called net lies, with its certificate and the checker of that."""
    Network(program_of(graph), reading=reading_of(graph)).emit(folder, "net")
    return folder
