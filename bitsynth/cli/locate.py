"""Cached kernels, found by the names that users give."""

from __future__ import annotations

from pathlib import Path

from bitsynth.errors import SpecError
from bitsynth.kernel.names import KernelName
from bitsynth.store import kernels
from bitsynth.store.entry import ProvedEntry


def load_named_kernel(name: str, variant: str | None) -> ProvedEntry:
    """Load and check the cached kernel called `name`, or its form for a processor; SpecError if there is none."""
    found = kernels.load_entry(_file(name, variant))
    return found.form(KernelName.parse(name).form(found.entry.kernel))


def _file(name: str, variant: str | None) -> Path:
    """Return the cached file of the kernel called `name`; SpecError if there is none."""
    path = kernels.named(name)
    if variant is None:
        return path
    isa = KernelName.parse(name).spec.isa
    found = (p for p in kernels.every() if p.name == path.name and p.parts[-3:-1] == (isa, variant))
    if (chosen := next(found, None)) is None:
        raise SpecError(f"no kernel {name} of variant {variant!r} in the cache; `bitsynth list` shows what there is")
    return chosen
