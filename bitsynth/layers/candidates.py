"""The cached kernels that a layer may have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bitsynth.errors import SpecError
from bitsynth.host import features
from bitsynth.host.placement import cpu_here, runs_natively
from bitsynth.host.sets import native_sets, sets_of, widest
from bitsynth.isa import architecture
from bitsynth.isa.load import load, load_table
from bitsynth.kernel.forms_used import needs
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.weight_zeros import plain_product
from bitsynth.spec.matmul import MatmulOperand, MatmulSpec
from bitsynth.spec.options import METHODS, KernelOptions
from bitsynth.store import kernels
from bitsynth.store.entry import Entry

Fits = Callable[[Entry], bool]
"""Whether a processor has what a kernel needs."""
CHANNELS = (64, 128, 32, 16)
"""Tiles of layers that are shipped, by their most columns: first those that are there by every method."""
DEEP_STEP = 128
"""Positions of K that a step takes of popcount kernels for layers of as many input channels."""
_host_needs: dict[str, tuple[str, ...]] = {}
"""Requirements of kernels on a processor, by their entries' digests: each is asked for at every search."""


@dataclass(frozen=True)
class Candidate:
    """The cached kernel for layers that `kernel_options` ask for, as its file describes it.

    It is of wider `operands` than the layer's if there are any. Its certificate is checked when a layer takes it.
    """

    entry: Entry
    kernel_options: KernelOptions
    operands: str = ""

    @property
    def isa(self) -> str:
        """Its instruction set: how wide the registers are that it works in."""
        return self.entry.kernel.isa

    @property
    def method(self) -> str:
        """The method asked for."""
        assert self.kernel_options.method is not None
        return self.kernel_options.method

    @property
    def model(self) -> str:
        """What the kernel is cheapest in: a processor that has it to itself, or "ops"."""
        return self.kernel_options.model

    @property
    def channels(self) -> int:
        """The most columns of a tile."""
        return self.kernel_options.channels


def candidates(
    act: MatmulOperand, wgt: MatmulOperand, isa: str, fits: Fits | None = None, methods: Sequence[str] = METHODS
) -> Iterator[Candidate]:
    """Every cached kernel for layers by `methods` on `isa`, or ("auto") on whatever this processor runs, that `fits`.

    By default those that run here.
    """
    for name in sets_for(isa):
        spec = MatmulSpec(name, act, wgt)
        for options in (x for method in methods for x in _tiles(method, load_table(name).in_order)):
            path = kernels.find_for(spec, options)
            if path is None or not (fits or runs_here)(entry := kernels.read_entry(path)):
                continue
            if plain_product(entry.kernel, spec):
                yield Candidate(entry, options)


def _tiles(method: str, in_order: Sequence[str]) -> Iterator[KernelOptions]:
    """What tiles that may be shipped are asked for by: their most columns, and positions of K a step.

    Of popcounts the processors that are `in_order` have their own.
    """
    for channels in CHANNELS:
        yield KernelOptions(method, channels=channels)
    if method == "popcount":
        yield KernelOptions(method, channels=CHANNELS[0], k_step=DEEP_STEP)
        yield from (KernelOptions(method, model=cpu, channels=CHANNELS[0]) for cpu in in_order)


def cached_entry(schedule: LayerSchedule, act: MatmulOperand, wgt: MatmulOperand) -> Entry | None:
    """The cached kernel that `schedule` runs, wherever that may be; None if there is none."""
    path = kernels.find_for(MatmulSpec(schedule.isa, act, wgt), schedule.kernel_options)
    return None if path is None else kernels.read_entry(path)


def sets_for(isa: str) -> list[str]:
    """The instruction sets whose kernels a layer may have that is asked for on `isa`, which may be "auto"."""
    return native_sets() if isa == "auto" else sets_of(isa)


def cpu_for(isa: str) -> str:
    """The processor that layers on `isa`, which may be "auto", are for: the one here, if it runs them and is known.

    Else the first that the set names, or "" on an architecture whose processors do not tell which they are.
    """
    table = load_table(widest(isa))
    known = architecture.named(table.arch).processors
    return cpu_here(table) or (next(iter(table.cpu)) if known else "")


def require_cpu(isa: str, cpu: str) -> None:
    """SpecError unless `cpu` is "" or a processor of `isa`, or ("auto") of one that this processor runs."""
    if not isinstance(cpu, str):
        raise SpecError(f"cpu must be the name of a processor, not {cpu!r}")
    if cpu and (isa != "auto" or not any(cpu in load_table(name).cpu for name in native_sets())):
        load(widest(isa)).for_cpu(cpu)


def home_of(isa: str) -> str:
    """The widest instruction set this processor runs whose layers may have kernels of `isa`."""
    bits = {name: load_table(name).vector_bits for name in (isa, *native_sets())}
    wider = [name for name in bits if bits[name] > bits[isa] and isa in sets_of(name)]
    return max([isa, *wider], key=lambda name: bits[name])


def runs_here(entry: Entry) -> bool:
    """Whether this processor has what the kernel needs, or emulation runs it anyway."""
    isa = load(entry.kernel.isa)
    if not runs_natively(isa.table):
        return True
    if entry.digest not in _host_needs:
        _host_needs[entry.digest] = needs(isa, entry.kernel).host
    return not features.lacking(_host_needs[entry.digest])
