"""An ELF object or library as memory: code and constants of its functions, relocated."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitsynth.errors import SpecError, ToolError
from bitsynth.objects.declared import MachineTable
from bitsynth.objects.memory import MemoryPlace, NotShown

INSTALL = "proving objects needs capstone and pyelftools: pip install 'bitsynth[objects]'"
END = 1 << 32
"""Sections end below this address; buffers and the stack are above it."""
_BASE, _ALIGN = 0x10000, 0x1000
_UNDEFINED = 0x100
"""The address of symbols of other objects, where there is no memory."""
_LONGEST = 15
"""The most bytes of an instruction."""
_EXECUTABLE, _ALLOCATED, _WRITABLE = 0x4, 0x2, 0x1


@dataclass(frozen=True)
class ObjectFile:
    """The sections of an object at addresses, and its functions' addresses and sizes by name."""

    path: Path
    code: tuple[MemoryPlace, ...]
    constants: tuple[MemoryPlace, ...]
    functions: dict[str, tuple[int, int]]

    def instruction_bytes(self, address: int) -> bytes:
        """Return the code from `address` on, as long as the longest instruction; NotShown if there is none."""
        for array in self.code:
            if array.start <= address < array.start + array.size and array.known is not None:
                first = address - array.start
                return array.known[first : first + _LONGEST]
        raise NotShown("it runs into what is no code of the object")

    def name_of(self, address: int) -> str:
        """Return the function that an address is in, "" if none."""
        return next((name for name, (at, size) in self.functions.items() if at <= address < at + size), "")

    def function(self, name: str) -> int:
        """Return the address of a function; SpecError if the object has none of that name."""
        if name in self.functions:
            return self.functions[name][0]
        some = ", ".join(sorted(self.functions)[:3])
        raise SpecError(f"{self.path} has no function {name}; " + (f"it has {some}" if some else "it has no symbols"))


def read_object(path: Path, table: MachineTable) -> ObjectFile:
    """Return the object at `path`; SpecError if it is none of the architecture, ToolError if pyelftools is missing."""
    try:
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile
    except ImportError:
        raise ToolError(INSTALL) from None
    try:
        with path.open("rb") as file:
            return _Reader(path, ELFFile(file), table).read()
    except (ELFError, OSError) as error:
        raise SpecError(f"{path}: want an ELF object or library: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, MemoryError, struct.error):
        raise SpecError(f"{path}: want an ELF object or library; its tables are damaged") from None


class _Reader:
    """One file that is read: its sections, and where they are placed."""

    def __init__(self, path: Path, file: Any, table: MachineTable) -> None:
        self._path, self._file, self._table = path, file, table
        self._sections = list(file.iter_sections())
        self._starts: dict[int, int] = {}
        self._data: dict[int, bytearray] = {}

    def read(self) -> ObjectFile:
        """Return sections with values and functions with addresses."""
        kind, machine = self._file["e_type"], self._file["e_machine"]
        if machine != self._table.elf or kind not in {"ET_REL", "ET_DYN"}:
            raise SpecError(f"{self._path}: want an object or a library of {self._table.elf}, not {kind} of {machine}")
        relocatable = kind == "ET_REL"
        self._place(relocatable)
        for section in self._sections:
            self._relocate(section) if relocatable else self._check_dynamic(section)
        arrays = {
            index: MemoryPlace(self._sections[index].name, start, len(self._data[index]), bytes(self._data[index]))
            for index, start in self._starts.items()
            if not self._writable(index)
        }
        code = tuple(x for index, x in arrays.items() if self._sections[index]["sh_flags"] & _EXECUTABLE)
        tables = [section for section in self._sections if section["sh_type"] in {"SHT_SYMTAB", "SHT_DYNSYM"}]
        functions = {
            symbol.name: (
                symbol["st_value"] + (self._starts[symbol["st_shndx"]] if relocatable else 0),
                symbol["st_size"],
            )
            for table in tables
            for symbol in table.iter_symbols()
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_shndx"] in self._starts
        }
        return ObjectFile(self._path, code, tuple(x for x in arrays.values() if x not in code), functions)

    def _writable(self, index: int) -> bool:
        return bool(self._sections[index]["sh_flags"] & _WRITABLE)

    def _place(self, relocatable: bool) -> None:
        """Give sections addresses: in a library those of its header, in an object one behind the other."""
        end = _BASE
        for index, section in enumerate(self._sections):
            size = section["sh_size"]
            if not section["sh_flags"] & _ALLOCATED or not size:
                continue
            start = end if relocatable else section["sh_addr"]
            end = max(end, (start + size + _ALIGN) & -_ALIGN)
            if end > END:
                raise SpecError(f"{self._path}: its sections end at {end:#x}; want them below {END:#x}")
            data = section.data() if section["sh_type"] != "SHT_NOBITS" else bytes(size)
            if len(data) != size:
                raise SpecError(f"{self._path} is truncated: {section.name} has {len(data)} of {size} bytes")
            if not relocatable and not self._writable(index) and not self._is_loaded(section):
                raise SpecError(f"{self._path}: {section.name} is not loaded where its header says")
            self._starts[index], self._data[index] = start, bytearray(data)

    def _is_loaded(self, section: Any) -> bool:
        """Return whether a segment puts the section's bytes at its address: segments are what a process loads."""
        return any(
            segment["p_type"] == "PT_LOAD"
            and 0 <= section["sh_addr"] - segment["p_vaddr"] <= segment["p_filesz"] - section["sh_size"]
            and section["sh_addr"] - segment["p_vaddr"] == section["sh_offset"] - segment["p_offset"]
            for segment in self._file.iter_segments()
        )

    def _relocate(self, section: Any) -> None:
        """Apply the relocations of a section; symbols of other objects are where there is no memory."""
        from elftools.elf.descriptions import describe_reloc_type

        target = section["sh_info"]
        if section["sh_type"] not in {"SHT_REL", "SHT_RELA"} or target not in self._data or self._writable(target):
            return
        symbols = self._file.get_section(section["sh_link"])
        for relocation in section.iter_relocations():
            kind, offset = describe_reloc_type(relocation["r_info_type"], self._file), relocation["r_offset"]
            size = self._table.absolute.get(kind) or self._table.relative.get(kind)
            if size is None or not relocation.is_RELA():
                raise SpecError(f"{self._path}: relocation {kind} in {self._sections[target].name} is not known")
            symbol = symbols.get_symbol(relocation["r_info_sym"])
            inside = symbol["st_shndx"] in self._starts
            value = self._starts[symbol["st_shndx"]] + symbol["st_value"] if inside else _UNDEFINED
            value += relocation["r_addend"]
            if kind in self._table.relative:
                value -= self._starts[target] + offset
            self._data[target][offset : offset + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")

    def _check_dynamic(self, section: Any) -> None:
        """Refuse a library whose code or constants change when it is loaded."""
        if section["sh_type"] not in {"SHT_REL", "SHT_RELA"}:
            return
        for relocation in section.iter_relocations():
            at = relocation["r_offset"]
            for index, start in self._starts.items():
                if start <= at < start + len(self._data[index]) and not self._writable(index):
                    raise SpecError(f"{self._path}: {self._sections[index].name} is changed when it is loaded")
