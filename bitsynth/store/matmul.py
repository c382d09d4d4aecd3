"""Matmul kernels as text: their kind of artifact, and how the kernel of widths and options is found.

Files lie in a folder for each `KernelOptions.variant`, and kernels of the same widths replace each other there.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from bitsynth.errors import BitsynthError, Refuted, SpecError, ToolError
from bitsynth.files import ADVICE
from bitsynth.kernel.names import KernelName
from bitsynth.spec.matmul import MatmulSpec
from bitsynth.spec.options import KernelOptions, synth_command
from bitsynth.store import files
from bitsynth.store.accept import accept
from bitsynth.store.artifacts import ArtifactKind
from bitsynth.store.entry import FORMAT, Entry, ProvedEntry, require_proved
from bitsynth.store.files import folders


class MatmulKind(ArtifactKind[Entry, ProvedEntry]):
    """Matmul kernels, in the folder of an instruction set, and in a folder there for each other variant."""

    name = "product"
    noun = "a kernel"
    record = Entry
    format = FORMAT
    pattern = "**/bs_mm_*.json"
    remedy = "delete it, or run `bitsynth synth --fresh` for its configuration"
    differs = "name, or sketch and cost model, differ from where it lies"

    def accept(self, record: Entry) -> ProvedEntry:
        """Return the kernel of a record, accepted."""
        return accept(record)

    def record_of(self, proved: ProvedEntry) -> Entry:
        """Return the text of a proved kernel."""
        return require_proved(proved).entry

    def place_of(self, record: Entry) -> Path:
        """Return the place of a record's file in a folder of kernels."""
        return Path(record.kernel.isa) / record.options.variant / f"{record.name}.json"

    def is_at(self, path: Path, record: Entry) -> bool:
        """Return whether a record may lie at `path`: a folder holds the kernels of one variant."""
        return (path.name, path.parent.name) == (f"{record.name}.json", self.place_of(record).parent.name)

    def reason(self, record: Entry, error: BitsynthError) -> str:
        """Return why the checker refuses a kernel, with an input on which it is wrong if one is found."""
        if not isinstance(error, Refuted):
            return str(error)
        from bitsynth.proof import counterexample

        return f"{error}; {' '.join(counterexample.evidence(record.kernel).split())}"

    def store(self, proved: ProvedEntry, folder: Path | None = None) -> Path:
        """Write the kernel; SpecError if it is a form of another, which is derived where it is wanted."""
        entry = require_proved(proved)
        if entry.base is not None:
            raise SpecError(f"{entry.entry.name} is made of {entry.base.entry.name} where it is wanted, not stored")
        return super().store(entry, folder)

    def find_superseded(self, path: Path) -> Collection[Path]:
        """Return the files of kernels of the same widths with another tile."""
        return [old for old in _files(path.parent, f"{path.stem.rsplit('_', 1)[0]}_*.json") if old != path]

    def load_named(self, name: str, variant: str | None = None) -> ProvedEntry:
        """Return the kernel called `name`, or its form for a processor; SpecError if there is none."""
        stored = self.load(self.find_named(name, variant))
        return stored.form(KernelName.parse(name).form(stored.entry.kernel))

    def find_named(self, name: str, variant: str | None = None) -> Path:
        """Return the file of the kernel called `name`, or of the kernel that it is a form of.

        Encodings do not matter. SpecError if there is none.
        """
        path = self._find_named(name, KernelName.parse(name))
        if variant is None:
            return path
        isa = KernelName.parse(name).spec.isa
        paths = (p for p in self.every() if p.name == path.name and p.parts[-3:-1] == (isa, variant))
        if (chosen := next(paths, None)) is None:
            raise SpecError(
                f"no kernel {name} of variant {variant!r} in the cache; `bitsynth list` shows what there is"
            )
        return chosen

    def _find_named(self, name: str, wanted: KernelName) -> Path:
        core = replace(wanted, spec=wanted.spec.core)
        stored = self.find(core.spec, core.order) if core.order else None
        if stored and _is_form(core, KernelName.parse(stored.stem)):
            return stored
        for folder in folders():
            for where in (folder / core.spec.isa, *_subfolders(folder / core.spec.isa)):
                if (path := where / f"{core}.json").is_file():
                    return path
        command = synth_command(wanted.spec, KernelOptions())
        raise SpecError(f"no kernel {name} in the cache; `bitsynth list` shows what there is, `{command}` makes one")

    def find(self, spec: MatmulSpec, variant: str) -> Path | None:
        """Return the file of the kernel of a `KernelOptions.variant` for `spec`'s widths, None if it is not cached."""
        start = _start(spec)
        for folder in folders():
            for name in _list_names(f"{folder}/{spec.isa}/{variant}"):
                if name.startswith(start):
                    return folder / spec.isa / variant / name
        return None

    def find_for(self, spec: MatmulSpec, options: KernelOptions) -> Path | None:
        """Return the file of the kernel that `options` ask for, None if it is not cached.

        The kernel of a method may be the cheapest of all methods, and cached as that alone.
        """
        path = self.find(spec, options.variant)
        if path is not None or options.method is None or options.sketch != "exact" or options.k_step:
            return path
        cheapest = self.find(spec, replace(options, method=None).variant)
        return cheapest if cheapest and self.read(cheapest).method == options.method else None


MATMUL = MatmulKind()


@lru_cache(maxsize=1 << 10)
def _start(spec: MatmulSpec) -> str:
    """Return the beginning of the names of kernels of `spec`'s widths."""
    core = spec.core
    return f"bs_mm_a{core.act.bits}u_w{core.wgt.bits}{core.wgt.encoding.letter}_s32_{core.isa}_"


def _list_names(folder: str) -> tuple[str, ...]:
    """Return the names of kernels' files in a folder, sorted, listed once while it stays; layers ask for hundreds."""
    try:
        folder_state = files.state(folder)
        return _list_once(folder, folder_state) if folder_state else _names(folder)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise ToolError(f"cannot read {folder}: {error.strerror or error}; {ADVICE}") from None


def _names(folder: str) -> tuple[str, ...]:
    return tuple(sorted(name for name in os.listdir(folder) if name.endswith(".json")))


@lru_cache(maxsize=1 << 10)
def _list_once(folder: str, state: tuple[int, ...]) -> tuple[str, ...]:
    return _names(folder)


def _is_form(form: KernelName, of: KernelName) -> bool:
    return (form.columns, form.k_step) == (of.columns, of.k_step) and form.rows <= of.rows


def _files(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError as error:
        raise ToolError(f"cannot read {folder}: {error.strerror or error}; {ADVICE}") from None


def _subfolders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("*") if p.is_dir())
