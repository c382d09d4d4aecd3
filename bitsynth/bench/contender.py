"""What takes part in a benchmark of layers: something that is timed layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from bitsynth.bench.burst import burst

Kind = Literal["fp32", "int8", "bitsynth", "packing"]


class Contender(Protocol):
    """A way to compute every layer, by its name."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> Kind: ...

    def time(self, layer: str, repeats: int) -> list[int]:
        """Nanoseconds of every one of `repeats` calls."""
        ...


@dataclass(frozen=True, eq=False)
class Local:
    """A contender of this process: a call a layer, on `threads` threads that must not spin between calls."""

    name: str
    kind: Kind
    calls: Mapping[str, Callable[[], object]]
    threads: int

    def time(self, layer: str, repeats: int) -> list[int]:
        return burst(self.calls[layer], repeats, self.threads)
