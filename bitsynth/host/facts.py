"""Facts that times depend on, of this machine or of a board."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from bitsynth.host.features import with_other_names
from bitsynth.isa import architecture
from bitsynth.processes.child import Child, TooLate

if TYPE_CHECKING:
    from bitsynth.isa.tables import IsaTable

_SECONDS = 60
SCRIPT = (Path(__file__).parent / "facts.sh").read_text(encoding="utf-8")
_THROTTLED = ("under-voltage", "clock capped", "throttled", "at the soft temperature limit")
MAX_FIELD_DIGITS = len("0xfff")
_SINCE_BOOT = 16
"""The first of the bits in vcgencmd's word that stand for events since the board was started."""


@dataclass(frozen=True)
class Facts:
    """Facts of a machine, each empty or 0 if it is unknown.

    `midrs` are the kinds of Arm cores it has: implementer and part of their MIDR, as in "0x41 0xd08".
    """

    machine: str = ""
    bits: int = 0
    kernel: str = ""
    board: str = ""
    processor: str = ""
    vendor: str = ""
    family: str = ""
    model: str = ""
    cores: int = 0
    midrs: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    governor: str = ""
    clock_mhz: int = 0
    max_clock_mhz: int = 0
    throttled: str = ""
    temperature: str = ""
    emulator: str = ""
    boot: str = ""

    @classmethod
    def parse(cls, text: str) -> Facts:
        """Return the facts that `facts.sh` printed."""
        values = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
        return cls(
            machine=values.get("machine", "").lower(),
            bits=_number(values.get("bits")),
            kernel=values.get("kernel", ""),
            board=values.get("board", ""),
            processor=values.get("processor", ""),
            vendor=values.get("vendor", ""),
            family=values.get("family", ""),
            model=values.get("model", ""),
            cores=_number(values.get("cores")),
            midrs=_midrs(values.get("midrs", "")),
            features=frozenset(values.get("features", "").lower().split()),
            governor=values.get("governor", ""),
            clock_mhz=_number(values.get("clock_khz")) // 1000,
            max_clock_mhz=_number(values.get("max_clock_khz")) // 1000,
            throttled=_describe_throttling(values.get("throttled", "")),
            temperature=values.get("temperature", ""),
            emulator=values.get("emulator", ""),
            boot=values.get("boot", ""),
        )

    @property
    def kind(self) -> str:
        """Return the name of its processor, else of the board or the machine. Times of one kind are comparable.

        For a processor that has a family it is vendor, family and model: one name is sold or lent as many models.
        """
        if self.family.strip("- "):
            return f"{self.vendor} family {self.family} model {self.model}"
        names = (self.processor, self.board, self.machine)
        return next((name for name in names if name.strip("- ")), "unknown")

    def cpu(self, isa: IsaTable) -> str:
        """Return the processor in `isa` that is nearest to this machine's; "" if none is, or if its cores differ."""
        nearest = architecture.find_architecture(isa.arch).nearest_processor
        names = {nearest(core, isa.cpu) for core in self.midrs or [self.kind]}
        return names.pop() if len(names) == 1 else ""

    def runs(self, arch: str) -> bool:
        """Return whether programs for the architecture run on the machine."""
        return self.machine in architecture.find_architecture(arch).machines

    @property
    def title(self) -> str:
        """Return the kind of processor, as tuned schedules use it, and the processor's name."""
        return self.kind if self.processor in ("", self.kind) else f"{self.kind} ({self.processor})"

    def lacking(self, arch: str, wanted: Iterable[str]) -> list[str]:
        """Return the features of `wanted` that the machine's processor lacks."""
        have = with_other_names(arch, self.features)
        return [f for f in wanted if f.lower() not in have]

    def __str__(self) -> str:
        clock = f"{self.clock_mhz} of {self.max_clock_mhz} MHz" if self.max_clock_mhz else ""
        governor = f"governor {self.governor}" if self.governor else ""
        state = f"throttling: {self.throttled}" if self.throttled else ""
        word = f"{self.bits}-bit {self.machine}" if self.bits else self.machine
        cores = f"{self.cores} cores" if self.cores else ""
        parts = (self.board, self.processor, cores, word, self.kernel, clock, governor, state, self.temperature)
        return ", ".join(x for x in parts if x)


@cache
def here() -> Facts:
    """Return the facts of this machine."""
    try:
        with Child(["sh", "-c", SCRIPT]) as child:
            return Facts.parse(child.output(_SECONDS)[0].decode(errors="replace"))
    except (OSError, TooLate):
        return Facts()


def _number(text: str | None) -> int:
    return int(text) if text and text.strip().isdecimal() else 0


def _midrs(text: str) -> frozenset[str]:
    """Return implementer and part of each core, from whole MIDR registers or from pairs of their fields."""
    words = [word for word in text.split() if re.fullmatch("0x[0-9a-f]{1,16}", word)]
    registers = [int(word, 16) for word in words if len(word) > MAX_FIELD_DIGITS]
    if registers:
        return frozenset(f"{r >> 24 & 0xFF:#x} {r >> 4 & 0xFFF:#x}" for r in registers)
    return frozenset(f"{implementer} {part}" for implementer, part in zip(words[::2], words[1::2], strict=False))


def _describe_throttling(text: str) -> str:
    """Return the result of `vcgencmd get_throttled` in words; "" if there is none."""
    try:
        word = int(text, 16)
    except ValueError:
        return ""
    now = [name for i, name in enumerate(_THROTTLED) if word >> i & 1]
    once = [f"{name} since boot" for i, name in enumerate(_THROTTLED) if word >> i + _SINCE_BOOT & 1]
    return ", ".join([*now, *once]) or "none"
