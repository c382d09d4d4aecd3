"""The cached kernels that can run a layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bitsynth.errors import SpecError
from bitsynth.host import features
from bitsynth.host.placement import cpu_here, native_sets, runs_natively, sets_of, widest
from bitsynth.isa import architecture
from bitsynth.isa.load import load, load_table
from bitsynth.kernel.straight_line import needs
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.weight_zeros import plain_product
from bitsynth.spec.matmul import MatmulOperand, MatmulSpec
from bitsynth.spec.options import METHODS, KernelOptions
from bitsynth.store.entry import Entry
from bitsynth.store.matmul import MATMUL

Fits = Callable[[Entry], bool]
"""Whether a processor has what a kernel needs."""
CHANNELS = (64, 128, 32, 16)
"""Column limits of shipped tiles of layers; the first has kernels of every method."""
DEEP_STEP = 128
"""Positions of K in a step of popcount kernels for layers with at least as many input channels."""
_host_needs: dict[str, tuple[str, ...]] = {}
"""Memo of kernels' requirements on a processor, by digest of the entry: every search asks for each."""


@dataclass(frozen=True)
class Candidate:
    """A cached kernel that can run a layer, found by `kernel_options`, as its file describes it.

    Nonempty `operands` say that its operands are wider than the layer's. Its certificate is checked when a layer
    uses it.
    """

    entry: Entry
    kernel_options: KernelOptions
    operands: str = ""

    @property
    def isa(self) -> str:
        """The instruction set, which fixes the width of registers."""
        return self.entry.kernel.isa

    @property
    def method(self) -> str:
        """The method asked for."""
        assert self.kernel_options.method is not None
        return self.kernel_options.method

    @property
    def model(self) -> str:
        """The cost model that the kernel minimizes: a processor, or "ops"."""
        return self.kernel_options.model

    @property
    def channels(self) -> int:
        """The limit of a tile's columns."""
        return self.kernel_options.channels


def candidates(
    act: MatmulOperand, wgt: MatmulOperand, isa: str, fits: Fits | None = None, methods: Sequence[str] = METHODS
) -> Iterator[Candidate]:
    """Return every cached kernel for layers by `methods` on `isa` that `fits`; "auto" is all sets of this processor.

    By default kernels fit that run here.
    """
    for name in sets_for(isa):
        spec = MatmulSpec(name, act, wgt)
        for options in (x for method in methods for x in _tiles(method, load_table(name).in_order)):
            path = MATMUL.find_for(spec, options)
            if path is None:
                continue
            entry = MATMUL.read(path)
            if not (fits(entry) if fits else runs_here(entry, isa)):
                continue
            if plain_product(entry.kernel, spec):
                yield Candidate(entry, options)


def _tiles(method: str, in_order: Sequence[str]) -> Iterator[KernelOptions]:
    """Yield the options of shipped tiles: column limits, and positions of K a step.

    Popcount kernels have variants for the `in_order` processors.
    """
    for channels in CHANNELS:
        yield KernelOptions(method, channels=channels)
    if method == "popcount":
        yield KernelOptions(method, channels=CHANNELS[0], k_step=DEEP_STEP)
        yield from (KernelOptions(method, model=cpu, channels=CHANNELS[0]) for cpu in in_order)


def cached_entry(schedule: LayerSchedule, act: MatmulOperand, wgt: MatmulOperand) -> Entry | None:
    """Return the cached kernel that `schedule` names; None if there is none."""
    path = MATMUL.find_for(MatmulSpec(schedule.isa, act, wgt), schedule.kernel_options)
    return None if path is None else MATMUL.read(path)


def sets_for(isa: str) -> list[str]:
    """Return the instruction sets whose kernels can run a layer for `isa`, which may be "auto"."""
    return native_sets() if isa == "auto" else sets_of(isa)


def cpu_for(isa: str) -> str:
    """Return the processor that layers on `isa` are optimized for: this one, if it is known and runs `isa` or "auto".

    Otherwise it is the first that the set names, or "" on an architecture without processor identification.
    """
    table = load_table(widest(isa))
    processors = architecture.find_architecture(table.arch).processors
    return cpu_here(table) or (next(iter(table.cpu)) if processors else "")


def require_cpu(isa: str, cpu: str) -> None:
    """Raise SpecError unless `cpu` is "" or a processor of `isa`; with "auto", of a set that this processor runs."""
    if not isinstance(cpu, str):
        raise SpecError(f"cpu must be the name of a processor, not {cpu!r}")
    if cpu and (isa != "auto" or not any(cpu in load_table(name).cpu for name in native_sets())):
        load(widest(isa)).for_cpu(cpu)


def home_of(isa: str) -> str:
    """Return the widest instruction set of this processor whose layers can use kernels of `isa`."""
    bits = {name: load_table(name).vector_bits for name in (isa, *native_sets())}
    wider = [name for name in bits if bits[name] > bits[isa] and isa in sets_of(name)]
    return max([isa, *wider], key=lambda name: bits[name])


def runs_here(entry: Entry, isa: str) -> bool:
    """Return whether this processor, or an emulator, has the features that the kernel of a layer for `isa` needs.

    If this processor lacks the set, the layer is for another processor: then the answer is True.
    """
    lacks_set = isa != "auto" and features.missing(load_table(isa))
    if lacks_set or not runs_natively(load_table(entry.kernel.isa)):
        return True
    if entry.digest not in _host_needs:
        _host_needs[entry.digest] = needs(entry.kernel).host
    return not features.lacking(_host_needs[entry.digest])
