"""Inputs of a self-test and what the named reference makes of them: outputs, and a digest of every integer buffer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bitsynth.graph import run
from bitsynth.graph.types import Integers, Tensor
from bitsynth.network.numbers import every
from bitsynth.network.program import Buffer, NetworkProgram

NUMBERS = 256
"""Numbers that the elements of an input are taken from."""
MOST_SHOWN = 1 << 12
"""Elements of an output that are compared one by one, the first."""
_GAMMA, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


@dataclass(frozen=True)
class Golden:
    """What a program is tested with.

    Args:
        program: The program.
        edges: The integers or numbers of each edge for `inputs`, if they are known; else the reference makes them.
    """

    program: NetworkProgram
    edges: Mapping[str, Tensor] | None = None

    @cached_property
    def numbers(self) -> list[Tensor]:
        """The numbers that elements of each input are taken from."""
        graph = self.program.graph
        return [every(graph, graph.edges[name], NUMBERS) for name in graph.inputs]

    @cached_property
    def inputs(self) -> dict[str, Tensor]:
        """The inputs by name."""
        graph = self.program.graph
        return {
            name: table[choices(np.prod(graph.edges[name].shape, dtype=int), k)].reshape(graph.edges[name].shape)
            for k, (name, table) in enumerate(zip(graph.inputs, self.numbers, strict=True))
        }

    @cached_property
    def _values(self) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """Edges with integers, and the numbers of outputs."""
        graph = self.program.graph
        if self.edges is not None:
            return self.edges, self.edges
        found = run(graph, self.inputs)
        integers = {n: found[n] for n, e in graph.edges.items() if isinstance(e.type, Integers) and n in found}
        return integers, {name: found.floats(name) for name in graph.outputs}

    def digests(self) -> Iterator[tuple[int, Buffer, int]]:
        """Of each step the buffers of integers it fills, and the digests of what then lies there."""
        integers, _ = self._values
        for place, step in enumerate(self.program.steps):
            for buffer in (self.program.buffers[name] for name in step.outputs):
                if buffer.role == "arena" and isinstance(buffer.edge.type, Integers) and buffer.edge.name in integers:
                    memory = buffer.format.write(integers[buffer.edge.name])
                    yield place, buffer, digest(memory.view(np.uint8))

    def outputs(self) -> list[Tensor]:
        """The first elements of each output."""
        _, numbers = self._values
        return [numbers[name].reshape(-1)[:MOST_SHOWN] for name in self.program.graph.outputs]


def choices(count: int, stream: int) -> NDArray[np.int64]:
    """Pseudorandom places among `NUMBERS`, those that C makes of a stream's elements."""
    made = _mixed(_counted(count, stream << 32)) & np.uint64(NUMBERS - 1)
    return made.astype(np.int64)


def digest(memory: NDArray[np.uint8]) -> int:
    """The sum of mixed words and their places, as C makes it; behind the last byte are zeros."""
    words = np.zeros(-(-memory.size // 8) * 8, np.uint8)
    words[: memory.size] = memory
    with np.errstate(over="ignore"):
        return int(_mixed(words.view("<u8") + _counted(words.size // 8, 0)).sum(dtype=np.uint64))


def _counted(count: int, first: int) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        return (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(first)) * np.uint64(_GAMMA)


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The last part of splitmix64."""
    with np.errstate(over="ignore"):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(_FIRST)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(_SECOND)
        return z ^ (z >> np.uint64(31))
