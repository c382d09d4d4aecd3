"""What `bitsynth list` says of a stored kernel, whichever kind it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bitsynth import paths
from bitsynth.errors import BitsynthError, SpecError
from bitsynth.isa.load import load
from bitsynth.spec.options import scope
from bitsynth.store import depthwise, kernels
from bitsynth.store.depthwise import DepthwiseEntry
from bitsynth.store.entry import Entry


@dataclass(frozen=True)
class Figures:
    """What a file says of its kernel; no `bound` or `k_max` if it claims none, `minimal` says of what it is the best.

    A depthwise kernel takes operands of so many bits and fewer.
    """

    name: str
    isa: str
    act_bits: int
    w_bits: int
    method: str
    ops: float
    bound: float | None
    minimal: str | None
    cycles: dict[str, float]
    k_max: int | None


@dataclass(frozen=True)
class Listed:
    """A stored file: its figures, or what is wrong with it."""

    path: Path
    origin: str
    variant: str
    figures: Figures | None
    problem: str

    @property
    def isa(self) -> str:
        """The instruction set that it is stored under."""
        return kernels.place(self.path)[1].parts[0]


def every() -> Iterator[Path]:
    """All stored kernels, those of products first."""
    yield from kernels.every()
    yield from depthwise.every()


def origin(path: Path) -> str:
    """Where a stored file is from: "user" or "shipped"."""
    return "user" if kernels.place(path)[0] == paths.user_kernels() else "shipped"


def require_name(path: Path, name: str) -> None:
    """SpecError unless the file is called by the `name` of what it holds."""
    if name != path.stem:
        raise SpecError(f"{path} holds {name}; delete it or give it back its name")


def read(path: Path, check: bool) -> Listed:
    """The kernel in `path`; its figures are as the file says, or computed anew to `check` it."""
    variant = "/".join(kernels.place(path)[1].parts[1:-1])
    try:
        figures = _depthwise(path, check) if variant == depthwise.FOLDER else _of_products(path, check)
        require_name(path, figures.name)
    except BitsynthError as why:
        return Listed(path, origin(path), variant, None, str(why))
    return Listed(path, origin(path), variant, figures, "")


def _of_products(path: Path, check: bool) -> Figures:
    entry: Entry = kernels.load_entry(path).entry if check else kernels.read_entry(path)
    kernel, cost = entry.kernel, entry.cost
    minimal = scope(load(kernel.isa), kernel.method, entry.options) if cost.minimal else None
    return Figures(
        entry.name,
        kernel.isa,
        kernel.act_bits,
        kernel.w_bits,
        kernel.method,
        cost.ops_per_128_mac,
        cost.lower_bound,
        minimal,
        dict(cost.cycles),
        entry.certificate.k_max,
    )


def _depthwise(path: Path, check: bool) -> Figures:
    if check:
        depthwise.load_proved(path)
    entry: DepthwiseEntry = depthwise.read_entry(path)
    program, cost = entry.program, entry.cost
    return Figures(
        entry.name,
        program.isa,
        program.act_bits,
        program.w_bits,
        depthwise.FOLDER,
        cost.ops_per_128_mac,
        None,
        entry.minimality,
        dict(cost.cycles),
        None,
    )
