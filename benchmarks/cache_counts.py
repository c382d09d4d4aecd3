"""Exact executed instructions and modelled cache misses of layers, by a plugin of qemu-user (cache_counts.c).

Also the blocks that are run, in order: instructions up to a branch.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np

from bitsynth import toolchain
from bitsynth.emit.layer_program import NO_PROGRAMS, LayerPrograms
from bitsynth.errors import ToolError
from bitsynth.host import features
from bitsynth.isa import architecture, load
from bitsynth.layers.library import compile_library
from bitsynth.layers.scheduled_kernel import LayerKernel
from bitsynth.run import qemu
from bitsynth.run.elf import read_image
from bitsynth.run.emulated import EmulatedRunner
from bitsynth.run.runner import Runner

LINE_BYTES = 64
CACHES = {"L1": (32 << 10, 4), "L2": (512 << 10, 16)}
"""Bytes and ways of a Cortex-A53's cache in a Raspberry Pi 3."""
MODEL = (
    "L1D "
    + ", L2 ".join(f"{size >> 10} KiB of {ways} ways" for size, ways in CACHES.values())
    + f"; lines of {LINE_BYTES} bytes, least recently used replaced, stores fetch their lines, virtual addresses, "
    "no prefetching, data of one thread alone, cold at the start of every call"
)
ALIGN = 64
MAX_BLOCKS = 1 << 16
"""As the plugin has it."""


@dataclass(frozen=True)
class Counts:
    """The instructions a call executed, and the lines it missed in each cache."""

    instructions: int
    l1_misses: int
    l2_misses: int


@cache
def plugin() -> Path:
    """The compiled plugin."""
    here = next((i for i in map(load.load, load.names()) if i.table.arch == features.arch()), None)
    if here is None:
        raise ToolError(f"no instruction set of this processor, {features.arch()}, is known")
    sets = {f"{name}_SETS": size // LINE_BYTES // ways for name, (size, ways) in CACHES.items()}
    ways = {f"{name}_WAYS": ways for name, (_, ways) in CACHES.items()}
    flags = [f"-D{name}={value}" for name, value in {**sets, **ways}.items()]
    source = Path(__file__).with_suffix(".c")
    return toolchain.compile_for(
        here, {source.name: source.read_text(encoding="utf-8")}, flags=["-D_GNU_SOURCE", *flags]
    )


@dataclass(frozen=True)
class Trace:
    """The blocks of code, each an address in the library and a number of instructions, and which were run, in order."""

    blocks: list[tuple[int, int]]
    runs: list[int]


class Counter:
    """The counts in a file shared with the plugin, and the trace in another, if there is one, of code at `base`."""

    def __init__(self, path: Path, trace: Path | None, base: int) -> None:
        self._path, self._trace, self._base = path, trace, base

    def clear(self) -> None:
        """Counts at zero, caches empty, nothing run."""
        with self._path.open("r+b") as file:
            file.write(bytes(self._path.stat().st_size))
        if self._trace:
            with self._trace.open("r+b") as file:
                file.write(bytes(8))

    @property
    def counts(self) -> Counts:
        """The counts so far."""
        with self._path.open("rb") as file:
            return Counts(*struct.unpack("=3Q", file.read(24)))

    @property
    def trace(self) -> Trace:
        """What was run so far."""
        assert self._trace is not None
        head = np.fromfile(self._trace, np.uint64, 2 + 2 * MAX_BLOCKS)
        runs, blocks = map(int, head[:2])
        known = [(int(at) - self._base, int(count)) for at, count in head[2 : 2 + 2 * blocks].reshape(-1, 2)]
        return Trace(known, np.fromfile(self._trace, np.uint32, runs, offset=head.nbytes).tolist())


@contextmanager
def watched(
    kernel: LayerKernel,
    programs: LayerPrograms = NO_PROGRAMS,
    *,
    caches: bool = True,
    traced: bool = False,
    fetched: Mapping[int, Sequence[int]] = MappingProxyType({}),
) -> Iterator[tuple[Runner, Counter]]:
    """A runner of the kernel's layers under qemu, and the counts of its code; ToolError if qemu is not at hand.

    Without `caches` instructions alone are counted, which is faster; `traced` are the blocks that are run. Lines that
    are `fetched`, by the addresses of loads so many bytes behind what they read, are there.
    """
    isa = load.load(kernel.spec.isa)
    table = architecture.find_architecture(isa.table.arch)
    if table.emulator is None:
        raise ToolError(f"no emulator for {isa.name} ({isa.table.arch})")
    rules, flags = table.emulator, kernel.needs.cc_flags
    image = read_image(compile_library(kernel, programs), table.bits, rules)
    with tempfile.TemporaryDirectory() as folder:
        state, trace = Path(folder, "state"), Path(folder, "trace") if traced else None
        state.touch()
        options = ["-plugin", f"{plugin()},state={state},from={image.base:#x},to={image.place(2):#x}"]
        if not caches:
            options[-1] += ",caches=off"
        if fetched:
            fetch = Path(folder, "fetch")
            pairs = [(image.base + at, distance) for at, distances in fetched.items() for distance in distances]
            fetch.write_bytes(b"".join(struct.pack("=Qq", *pair) for pair in pairs))
            options[-1] += f",fetch={fetch}"
        if trace:
            trace.touch()
            options[-1] += f",trace={trace}"
        runner = EmulatedRunner(image, lambda: qemu.start(isa, rules.qemu, flags, options), ALIGN)
        try:
            yield runner, Counter(state, trace, image.base)
        finally:
            runner.close()
