"""Compiles the C of a network for this machine or an emulator, and calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bitsynth import toolchain
from bitsynth.emit.render import render
from bitsynth.errors import SpecError, ToolError
from bitsynth.graph.types import Tensor, numpy_type
from bitsynth.host.placement import runs_natively
from bitsynth.isa.load import load
from bitsynth.layers.layer import Scratch
from bitsynth.layers.library import FLAGS
from bitsynth.layers.pool import Pool
from bitsynth.network.arena import ArenaPlan, align_up
from bitsynth.network.library import STATUSES, NetworkText
from bitsynth.network.program import Buffer, NetworkProgram
from bitsynth.run.arguments import make_aligned
from bitsynth.run.runner import Runner, runner_for


@dataclass(eq=False)
class NetworkMachine:
    """A program with its buffers where the plan says, and the threads that run it; in its library it has a name."""

    program: NetworkProgram
    plan: ArenaPlan
    pool: Pool
    name: str = "network"
    scratch: Scratch = field(default_factory=Scratch)
    flags: ClassVar[tuple[str, ...]] = FLAGS

    @cached_property
    def text(self) -> NetworkText:
        """The C of the network."""
        return NetworkText(self.name, self.program, self.plan)

    @property
    def own_sources(self) -> dict[str, str]:
        """The C of its library that no other network has."""
        call = {"name": self.name, "places": list(self.places.values())}
        return {**self.text.own(), f"{self.name}_call.c": render("network_call.c.j2", call)}

    @property
    def shared_sources(self) -> dict[str, str]:
        """The C of its library that other networks may have too."""
        return self.text.parts.files(threads=runs_natively(load(self.program.isa).table))

    @cached_property
    def runner(self) -> Runner:
        """The runner of its library, compiled when first asked for; ToolError if that or running it fails."""
        isa, needs, sources = load(self.program.isa), self.text.needs, self.own_sources | self.shared_sources
        library = toolchain.compile_for(isa, sources, needs=needs, flags=self.flags, cached=sources)
        return runner_for(isa, library, needs=needs)

    @cached_property
    def arena_bytes(self) -> int:
        """The bytes of buffers and scratch memory."""
        return self.runner.call(f"{self.name}_arena_bytes", self.pool.threads)

    @cached_property
    def places(self) -> dict[str, int]:
        """The offset of each input and output in the block that holds them all."""
        places, end = {}, 0
        for buffer in self._given:
            places[buffer.name] = end
            end += align_up(buffer.bytes)
        return places

    @property
    def _given(self) -> list[Buffer]:
        return [self.program.buffers[name] for name in (*self.program.inputs, *self.program.outputs)]

    def tensors(self) -> tuple[NDArray[np.uint8], dict[str, NDArray[Any]]]:
        """Return a block of memory for inputs and outputs, and the array of each in it, by its buffer's name."""
        block = make_aligned(sum(align_up(b.bytes) for b in self._given), np.uint8)
        return block, {b.name: _view(block[self.places[b.name] :][: b.bytes], b) for b in self._given}

    def run(self, block: NDArray[np.uint8]) -> None:
        """Run on a block, one thread of Python at a time, which has the arena."""
        with self.scratch.lock, self.pool.acquire(self.runner) as pool:
            self._check(self.runner.call(*self._arguments(block, pool, 1), bits=32))

    def bind(self, block: NDArray[np.uint8], steps: tuple[int, int] | None, times: int) -> Callable[[], int]:
        """Return a call that runs all steps, or a range of them, on a block a number of times."""
        with self.pool.acquire(self.runner) as pool:
            return self.runner.bind(*self._arguments(block, pool, times, steps))

    def memory(self, name: str) -> NDArray[np.uint8]:
        """Return the arena's memory of a buffer, after a run."""
        start = self.plan.offsets[name]
        return self.scratch.arena[start : start + self.program.buffers[name].bytes]

    def _arguments(
        self, block: NDArray[np.uint8], pool: int, times: int, steps: tuple[int, int] | None = None
    ) -> Sequence[Any]:
        if self.arena_bytes < 0:
            raise SpecError(f"the network takes more memory than {self.program.isa} can have")
        first, last = steps or (0, len(self.program.steps))
        arena = self.scratch.room(self.arena_bytes)
        numbers = np.array([self.arena_bytes, first, last, times], np.uint64)
        return f"{self.name}_call", block, arena, pool, numbers

    def _check(self, status: int) -> None:
        if status == STATUSES["CODES"]:
            raise SpecError("an input has a number that is not one of those its codes stand for")
        if status:
            raise ToolError(f"the network failed with status {status}")


def _view(memory: NDArray[np.uint8], buffer: Buffer) -> Tensor:
    return memory.view(numpy_type(buffer.format.dtype)).reshape(buffer.edge.shape)
