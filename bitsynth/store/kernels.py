"""Solved kernels as text: one JSON file a kernel, a user's folder over the shipped one.

A file holds the program, its certificate and its cost; never C, never a pickle. Whatever
is read is checked again (`load_entry`) before C is rendered from it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cache as memoize
from functools import lru_cache
from pathlib import Path

from bitsynth import paths
from bitsynth.errors import BitsynthError, Refuted, SpecError, ToolError
from bitsynth.files import ADVICE
from bitsynth.isa.load import names as isa_names
from bitsynth.kernel.names import KernelName
from bitsynth.kernel.program import Kernel
from bitsynth.spec.matmul import MatmulSpec
from bitsynth.spec.options import KernelOptions, synth_command
from bitsynth.store import files
from bitsynth.store.accept import accept
from bitsynth.store.entry import FORMAT, Entry, ProvedEntry, require_proved
from bitsynth.store.files import folders


def find(spec: MatmulSpec, variant: str) -> Path | None:
    """Return the file of the kernel of a `KernelOptions.variant` for `spec`'s widths, None if it is not cached."""
    start = _start(spec)
    for folder in folders():
        for name in _listed(f"{folder}/{spec.isa}/{variant}"):
            if name.startswith(start):
                return folder / spec.isa / variant / name
    return None


@lru_cache(maxsize=1 << 10)
def _start(spec: MatmulSpec) -> str:
    """How the names of kernels of `spec`'s widths begin."""
    core = spec.core
    return f"bs_mm_a{core.act.bits}u_w{core.wgt.bits}{core.wgt.encoding.letter}_s32_{core.isa}_"


def _listed(folder: str) -> tuple[str, ...]:
    """Return the names of kernels' files in a folder, sorted, listed once while it stays; layers ask for hundreds."""
    try:
        folder_state = files.state(folder)
        return _kept_names(folder, folder_state) if folder_state else _names(folder)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise ToolError(f"cannot read {folder}: {error.strerror or error}; {ADVICE}") from None


def _names(folder: str) -> tuple[str, ...]:
    return tuple(sorted(name for name in os.listdir(folder) if name.endswith(".json")))


@lru_cache(maxsize=1 << 10)
def _kept_names(folder: str, state: tuple[int, ...]) -> tuple[str, ...]:
    return _names(folder)


def find_for(spec: MatmulSpec, options: KernelOptions) -> Path | None:
    """Return the file of the kernel that `options` ask for, None if it is not cached.

    The kernel of a method may be the cheapest of all methods, and cached as that alone.
    """
    path = find(spec, options.variant)
    if path is not None or options.method is None or options.sketch != "exact" or options.k_step:
        return path
    cheapest = find(spec, replace(options, method=None).variant)
    return cheapest if cheapest and read_entry(cheapest).method == options.method else None


def named(name: str) -> Path:
    """Return the file of the kernel called `name`, whatever its encodings, or of which it is a form for a processor.

    SpecError if there is none.
    """
    wanted = KernelName.parse(name)
    core = replace(wanted, spec=wanted.spec.core)
    found = find(core.spec, core.order) if core.order else None
    if found and _is_form(core, KernelName.parse(found.stem)):
        return found
    for folder in folders():
        for where in (folder / core.spec.isa, *_subfolders(folder / core.spec.isa)):
            if (path := where / f"{core}.json").is_file():
                return path
    command = synth_command(wanted.spec, KernelOptions())
    raise SpecError(f"no kernel {name} in the cache; `bitsynth list` shows what there is, `{command}` makes one")


def _is_form(form: KernelName, of: KernelName) -> bool:
    return (form.columns, form.k_step) == (of.columns, of.k_step) and form.rows <= of.rows


def every() -> Iterator[Path]:
    """All cached files, the user's over the shipped ones of the same place and name."""
    return files.every("*/**/bs_mm_*.json")


def place(path: Path) -> tuple[Path, Path]:
    """Return the folder of kernels that a cached file is in, and its place there, without its ending."""
    folder = next(folder for folder in folders() if path.is_relative_to(folder))
    return folder, path.relative_to(folder).with_suffix("")


def _files(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError as error:
        raise ToolError(f"cannot read {folder}: {error.strerror or error}; {ADVICE}") from None


def _subfolders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("*") if p.is_dir())


def read_entry(path: Path) -> Entry:
    """Return the entry in the file `path`, its digest checked; SpecError says what is wrong and what to do."""
    return files.read(path, Entry, "a kernel", FORMAT, _REMEDY)


_REMEDY = "delete it, or run `bitsynth synth --fresh` for its configuration"


@memoize
def load_entry(path: Path) -> ProvedEntry:
    """Return the entry in `path`, accepted; SpecError says what of it does not check."""
    entry = read_entry(path)
    isa_names()  # A faulty BITSYNTH_ISA is no fault of the kernel.
    try:
        found = accept(entry)
        if path.stem != entry.name or path.parent.name != (entry.options.variant or entry.kernel.isa):
            raise SpecError("name, or sketch and cost model, differ from where it lies")
    except BitsynthError as why:
        raise SpecError(f"{path}: the certificate does not check: {_because(entry.kernel, why)}; {_REMEDY}") from None
    return found


def _because(kernel: Kernel, why: BitsynthError) -> str:
    """Return the reason why the checker refuses a kernel, with an input it is wrong on if one is found."""
    if not isinstance(why, Refuted):
        return str(why)
    from bitsynth.proof import counterexample

    return f"{why}; {' '.join(counterexample.evidence(kernel).split())}"


def store(found: ProvedEntry) -> Path:
    """Write the entry to the user's folder, in one step: readers see the old file or the new one.

    Files of the same widths with another tile go: one process at a time, or two would remove each other's.
    """
    entry = require_proved(found).entry
    if found.base is not None:
        raise SpecError(f"{entry.name} is made of {found.base.entry.name} where it is wanted, not stored")
    folder = paths.user_kernels() / entry.kernel.isa / entry.options.variant
    path = folder / f"{entry.name}.json"
    with files.changing(path, entry.kernel.isa):
        files.write(path, entry)
        for old in _files(folder, f"{entry.name.rsplit('_', 1)[0]}_*.json"):
            if old != path:
                old.unlink(missing_ok=True)
    load_entry.cache_clear()
    return path
