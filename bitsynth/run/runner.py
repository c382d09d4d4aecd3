"""Calls functions of a compiled library, wherever its code can run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bitsynth.errors import ToolError
from bitsynth.host import features
from bitsynth.host.placement import get_forced_runner, is_emulated
from bitsynth.isa import architecture
from bitsynth.isa.architecture import Emulator

if TYPE_CHECKING:
    from bitsynth.isa.load import Isa, Requirements


class Runner(Protocol):
    """A runner: it calls functions of one library."""

    @property
    def description(self) -> str:
        """The place where the code runs, in words."""

    @property
    def in_process(self) -> bool:
        """Whether the code runs in this process, so that addresses of it may be passed as integers."""

    @property
    def instructions(self) -> int | None:
        """The number of instructions the last call executed, None if they are not counted."""

    def call(self, symbol: str, *args: object, bits: int | None = None) -> int:
        """Call `symbol` with at most 10 integers, numpy arrays and None (a null pointer).

        Integers go as words, as `size_t` does; a 64-bit one cannot be passed to 32-bit code.
        An array must be C-contiguous and goes as a pointer; what the function writes is in
        the array afterwards. The result is a word as a signed number, or its low 32 bits with
        `bits=32`, which a function that returns `int` needs: the upper half is then undefined.
        """

    def bind(self, symbol: str, *args: object) -> Callable[[], int]:
        """Return the call of `symbol` with these arguments, checked once; the arrays are read at each call.

        Its result is a status: an int.
        """

    def close(self) -> None:
        """Free the runner's memory and processes."""


def runner_for(
    isa: Isa, library: Path, *, needs: Requirements | None = None, count: bool = False, align: int = 16
) -> Runner:
    """Return a runner for `library`, which `compile_for` built for `isa` and `needs`.

    Natively if the processor can, else under qemu-user, else under unicorn;
    BITSYNTH_RUNNER forces one. `count` asks for instruction counts, which unicorn has.
    Emulators place each array so that it ends at an unmapped page, `align` allowing.
    """
    kind, needs, emulator = (
        get_forced_runner(),
        needs or isa.requirements(),
        architecture.find_architecture(isa.table.arch).emulator,
    )
    if not kind and count and emulator:
        kind = "unicorn"
    if kind == "native" or (not kind and not is_emulated(isa.table)):
        return _native(isa, library, needs)
    if emulator is None:
        raise ToolError(f"no emulator for {isa.name} ({isa.table.arch}): unset BITSYNTH_RUNNER, or set it to native")
    kinds = [kind] if kind else ["qemu", "unicorn"]
    return _first([partial(_load_emulated, isa, library, emulator, needs.cc_flags, k, count, align) for k in kinds])


def _first(makers: list[Callable[[], Runner]]) -> Runner:
    problems = []
    for make in makers:
        try:
            return make()
        except ToolError as error:
            problems.append(str(error))
    raise ToolError("\n".join(dict.fromkeys(problems)))


def _native(isa: Isa, library: Path, needs: Requirements) -> Runner:
    from bitsynth.run.native import NativeRunner

    if isa.table.arch != features.arch():
        raise ToolError(f"{isa.name} code needs an {isa.table.arch} processor; this one is {features.arch()}")
    if absent := features.lacking(needs.host):
        raise ToolError(f"{isa.name} code needs a processor with {', '.join(absent)}; this one lacks it")
    return NativeRunner(library)


def _load_emulated(
    isa: Isa, library: Path, emulator: Emulator, flags: Sequence[str], kind: str, count: bool, align: int
) -> Runner:
    from bitsynth.run.elf import read_image
    from bitsynth.run.emulated import EmulatedRunner

    image = read_image(library, architecture.find_architecture(isa.table.arch).bits, emulator)
    if kind == "qemu":
        from bitsynth.run.qemu import start

        return EmulatedRunner(image, lambda: start(isa, emulator.qemu, flags), align)
    from bitsynth.run.unicorn import UnicornMachine

    cpu = architecture.emulated_cpu(emulator.unicorn.cpu, flags)
    return EmulatedRunner(image, lambda: UnicornMachine(image, emulator.unicorn, cpu, count), align)
