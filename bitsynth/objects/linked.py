"""Objects of a library, linked: the addresses of functions and constants of other objects are numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bitsynth.errors import SpecError
from bitsynth.objects.declared import MachineTable
from bitsynth.objects.elf import ObjectFile, places_of, read_object

_STUB_BYTES = 16
"""Bytes between the addresses of functions that no object has."""


@dataclass(frozen=True)
class LinkedCode:
    """Objects that were linked.

    Attributes:
        file: All code, constants and functions.
        outside: The addresses of functions that are in none of the objects, by name. There is no code.
    """

    file: ObjectFile
    outside: dict[str, int]

    def function(self, name: str) -> int:
        """Return the address of the only function of that name, local ones included; SpecError if there is none."""
        addresses = {address for function, address, _ in self.file.symbols if function == name}
        if len(addresses) != 1:
            raise SpecError(f"{self.file.path.name}: {len(addresses)} of its functions are called {name}")
        return addresses.pop()


def link_objects(
    paths: Sequence[Path], table: MachineTable, base: int, outside: Iterable[str], *, even: bool = False
) -> LinkedCode:
    """Return objects linked from the address `base`, a multiple of a page, on.

    Functions that are called and in no object must be among `outside`, or code that calls them is refused when it runs.
    SpecError for an object that cannot be read, and if two objects have a symbol of the same name.
    """
    places: dict[str, int] = {}
    bases = []
    for path in paths:
        bases.append(base)
        own, base = places_of(path, table, base, even=even)
        if twice := sorted(own.keys() & places):
            raise SpecError(f"{path.name}: two objects have a symbol {twice[0]}")
        places |= own
    stubs = {name: base + _STUB_BYTES * k for k, name in enumerate(outside) if name not in places}
    elsewhere = places | stubs
    files = [read_object(p, table, at, even=even, elsewhere=elsewhere) for p, at in zip(paths, bases, strict=True)]
    return LinkedCode(_join(files), stubs)


def _join(files: Sequence[ObjectFile]) -> ObjectFile:
    """Return objects as one."""
    first = files[0]
    return ObjectFile(
        first.path,
        first.base,
        tuple(x for file in files for x in file.code),
        tuple(x for file in files for x in file.constants),
        {name: place for file in files for name, place in file.functions.items()},
        tuple(x for file in files for x in file.symbols),
        {at: name for file in files for at, name in file.unknown.items()},
        tuple(x for file in files for x in file.plain),
        tuple(x for file in files for x in file.parts),
        {},
    )
