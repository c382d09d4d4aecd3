"""The cached kernels that a benchmark is about."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from bitsynth.errors import BitsynthError, SpecError
from bitsynth.host.placement import cpu_here
from bitsynth.isa.load import load
from bitsynth.kernel.names import KernelName
from bitsynth.matmul import MatmulKernel
from bitsynth.store.files import folders
from bitsynth.store.matmul import MATMUL


@dataclass(frozen=True)
class CachedKernels:
    """Kernels of one instruction set, each once with its variants, and the reasons why other files hold none."""

    isa: str
    kernels: tuple[tuple[MatmulKernel, str], ...]
    problems: tuple[BitsynthError, ...]


def kernels(isa: str, act_bits: Collection[int] = (), w_bits: Collection[int] = ()) -> CachedKernels:
    """Return the cached kernels of `isa`, of the given widths if any, each as it is quickest on this processor.

    Each certificate is checked again. SpecError if there is not one file.
    """
    homes = [folder / isa for folder in folders()]
    files = [
        p for p in MATMUL.every() if any(p.is_relative_to(home) for home in homes) and _has_widths(p, act_bits, w_bits)
    ]
    if not files:
        widths = f" A{_either(act_bits)}W{_either(w_bits)}" if act_bits or w_bits else ""
        example = f"--act-bits {min(act_bits, default=2)} --w-bits {min(w_bits, default=1)}"
        raise SpecError(f"no cached kernel{widths} for {isa}; `bitsynth synth --isa {isa} {example}` makes one")
    distinct: list[MatmulKernel] = []
    variants: list[list[str]] = []
    problems: list[BitsynthError] = []
    cpu = cpu_here(load(isa).table)
    for path in files:
        try:
            kernel = MatmulKernel(MATMUL.load(path), KernelName.parse(path.stem).spec).on(cpu)
        except BitsynthError as why:
            problems.append(why)
            continue
        variant = [] if path.parent.name == isa else [path.parent.name]
        same = next((k for k, have in enumerate(distinct) if have.entry.kernel == kernel.entry.kernel), None)
        if same is None:
            distinct.append(kernel)
            variants.append(variant)
        else:
            variants[same] += variant
    return CachedKernels(isa, tuple(zip(distinct, map(", ".join, variants), strict=True)), tuple(problems))


def _has_widths(path: Path, act_bits: Collection[int], w_bits: Collection[int]) -> bool:
    """Return whether the widths are wanted. A file whose name tells no widths is wanted, so that it is reported."""
    try:
        spec = KernelName.parse(path.stem).spec
    except SpecError:
        return True
    return (not act_bits or spec.act.bits in act_bits) and (not w_bits or spec.wgt.bits in w_bits)


def _either(bits: Collection[int]) -> str:
    return "|".join(map(str, sorted(bits))) or "*"
