"""The kernels and elementwise programs in a network's C, by the digests of their certificates in the store."""

from __future__ import annotations

from typing import Any

import msgspec

from bitsynth.errors import SpecError
from bitsynth.kernel.elementwise.program import ElementwiseProgram
from bitsynth.layers.glue.programs import list_called
from bitsynth.layers.packed import PackedLayer
from bitsynth.network.program import GlueStep, LayerStep, NetworkStep
from bitsynth.proof.proved import Proved
from bitsynth.store.artifacts import KindName
from bitsynth.store.elementwise import ELEMENTWISE
from bitsynth.store.entry import ProvedEntry
from bitsynth.store.kinds import KINDS


class KernelRecord(msgspec.Struct, frozen=True):
    """A stored kernel or elementwise program, by its digest."""

    kind: KindName
    name: str
    isa: str
    digest: str

    def load(self) -> Proved[Any]:
        """Return the stored kernel, checked again except for what Z3 discharged; SpecError if none has this digest."""
        kind = KINDS[self.kind]
        for path in kind.every():
            if path.stem == self.name and kind.read(path).digest == self.digest:
                proved: ProvedEntry | Proved[Any] = kind.load(path)
                return proved.proved if isinstance(proved, ProvedEntry) else proved
        raise SpecError(
            f"no kernel {self.name} with the digest {self.digest[:12]} is stored: the network was made with others; "
            "compile it again"
        )


def records_of(step: NetworkStep) -> list[KernelRecord]:
    """Return the kernel of a layer and the proved programs around it, or the programs that glue calls."""
    if isinstance(step, LayerStep):
        return [_kernel(step.layer), *map(_record, step.layer.programs.proved)]
    return [_record(p) for p in list_called(step.glue.isa, step.glue.constants)] if isinstance(step, GlueStep) else []


def _kernel(layer: PackedLayer) -> KernelRecord:
    kernel = layer.plan.kernel
    return KernelRecord(kernel.kind.name, kernel.stored.name, kernel.spec.isa, kernel.stored.digest)


def _record(program: ElementwiseProgram) -> KernelRecord:
    """Return the record of an elementwise program, or of the program whose results it moves."""
    proved = ELEMENTWISE.find(program.isa, program.spec)
    assert proved is not None
    record = ELEMENTWISE.record_of(proved)
    return KernelRecord(ELEMENTWISE.name, record.name, program.isa, record.digest)
