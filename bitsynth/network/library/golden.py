"""Inputs of a self-test and the reference's results for them: outputs, and a digest of every integer buffer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bitsynth.graph.reference import stream, to_floats
from bitsynth.graph.types import Integers, Tensor
from bitsynth.network.program import Buffer, NetworkProgram
from bitsynth.network.sample_inputs import every

NUMBERS = 256
"""Numbers that the elements of an input are taken from."""
MAX_SHOWN = 1 << 12
"""Elements of an output that are compared one by one, the first."""
_BLOCK = 1 << 16
"""Words that are mixed at once: they stay in the cache."""
_GAMMA, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


@dataclass(frozen=True)
class Golden:
    """The inputs and expected results of a program's self-test.

    Args:
        program: The program.
        edges: The integers or numbers of each edge for `inputs`, if they are known; else the reference makes them.
    """

    program: NetworkProgram
    edges: Mapping[str, Tensor] | None = None

    @cached_property
    def numbers(self) -> list[Tensor]:
        """The numbers from which the elements of each input are chosen."""
        graph = self.program.graph
        return [every(graph, graph.edges[name], NUMBERS) for name in graph.inputs]

    @cached_property
    def inputs(self) -> dict[str, Tensor]:
        """The inputs, by name."""
        graph = self.program.graph
        return {
            name: table[choices(np.prod(graph.edges[name].shape, dtype=int), k)].reshape(graph.edges[name].shape)
            for k, (name, table) in enumerate(zip(graph.inputs, self.numbers, strict=True))
        }

    @cached_property
    def _found(self) -> tuple[dict[str, int], dict[str, Tensor]]:
        """Return the digest of each tested buffer and the first elements of each output of one run, by name."""
        graph, digests, outputs = self.program.graph, {}, {}
        tested: dict[str, list[Buffer]] = {}
        for _, buffer in self._find_tested():
            tested.setdefault(buffer.edge.name, []).append(buffer)
        for name, value in stream(graph, self.inputs) if self.edges is None else self.edges.items():
            for buffer in tested.get(name, ()):
                digests[buffer.name] = digest(buffer.format.write(value).view(np.uint8))
            if name in graph.output_set:
                numbers = to_floats(graph, name, value) if self.edges is None else value
                outputs[name] = numbers.reshape(-1)[:MAX_SHOWN].copy()
        return digests, outputs

    def _find_tested(self) -> Iterator[tuple[int, Buffer]]:
        """Yield the integer buffers that each step fills."""
        for place, step in enumerate(self.program.steps):
            for buffer in (self.program.buffers[name] for name in step.outputs):
                if buffer.role == "arena" and isinstance(buffer.edge.type, Integers):
                    yield place, buffer

    def digests(self) -> Iterator[tuple[int, Buffer, int]]:
        """Yield the integer buffers that each step fills, with the digests of their contents."""
        digests, _ = self._found
        for place, buffer in self._find_tested():
            if buffer.name in digests:
                yield place, buffer, digests[buffer.name]

    def outputs(self) -> list[Tensor]:
        """Return the first elements of each output."""
        _, outputs = self._found
        return [outputs[name] for name in self.program.graph.outputs]


def choices(count: int, sequence: int) -> NDArray[np.uint8]:
    """Return pseudorandom indices below `NUMBERS`, the same as the C draws for the elements of a `sequence`."""
    drawn = np.empty(count, np.uint8)
    for first in range(0, count, _BLOCK):
        part = drawn[first : first + _BLOCK]
        part[...] = _mix(_count(part.size, (sequence << 32) + first)) & np.uint64(NUMBERS - 1)
    return drawn


def digest(memory: NDArray[np.uint8]) -> int:
    """Return the sum of mixed words and their places, as the C computes it; the last word is padded with zeros."""
    total = np.uint64(0)
    for first in range(0, memory.size, 8 * _BLOCK):
        part = memory[first : first + 8 * _BLOCK]
        words = np.zeros(-(-part.size // 8) * 8, np.uint8)
        words[: part.size] = part
        with np.errstate(over="ignore"):
            mixed = _mix(words.view("<u8") + _count(words.size // 8, first // 8))
            total += mixed.sum(dtype=np.uint64)
    return int(total)


def _count(count: int, first: int) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        return (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(first)) * np.uint64(_GAMMA)


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the last step of splitmix64."""
    with np.errstate(over="ignore"):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(_FIRST)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(_SECOND)
        return z ^ (z >> np.uint64(31))
