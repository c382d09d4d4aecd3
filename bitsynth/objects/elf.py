"""An ELF object or library as memory: code and constants of a function, relocated."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitsynth.errors import ToolError
from bitsynth.objects.memory import MemoryPlace, NotShown

INSTALL = "proving objects needs capstone and pyelftools: pip install 'bitsynth[objects]'"
_BASE = 0x10000
_ALIGN = 0x1000
_ABSOLUTE, _RELATIVE = {1: 8, 10: 4, 11: 4}, {2: 4, 4: 4}
"""Relocations of x86-64 that are an address, and those that are a distance, by type: bytes of the field."""
_EXECUTABLE, _ALLOCATED, _WRITABLE = 0x4, 0x2, 0x1


@dataclass(frozen=True)
class ObjectFile:
    """The sections of an object at addresses, and its functions' addresses and sizes by name."""

    path: Path
    code: tuple[MemoryPlace, ...]
    constants: tuple[MemoryPlace, ...]
    functions: dict[str, tuple[int, int]]

    def instruction_bytes(self, address: int) -> bytes:
        """Return the code from `address` on, up to 15 bytes; NotShown if there is none."""
        for array in self.code:
            if array.start <= address < array.start + array.size and array.known is not None:
                first = address - array.start
                return array.known[first : first + 15]
        raise NotShown("it runs into what is no code of the object")

    def name_of(self, address: int) -> str:
        """Return the function that an address is in, "" if none."""
        return next((name for name, (at, size) in self.functions.items() if at <= address < at + size), "")


def read_object(path: Path) -> ObjectFile:
    """Return the object at `path`; ToolError if it is none that can be read, or pyelftools is missing."""
    try:
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile
    except ImportError:
        raise ToolError(INSTALL) from None
    try:
        with path.open("rb") as file:
            return _placed(path, ELFFile(file))
    except (ELFError, OSError) as error:
        raise ToolError(f"cannot read {path}: {error}") from None


def _placed(path: Path, file: Any) -> ObjectFile:
    if file.elfclass != 64 or file["e_machine"] != "EM_X86_64" or file["e_type"] not in {"ET_REL", "ET_DYN"}:
        raise ToolError(f"{path} is no object or library of 64-bit x86")
    relocatable = file["e_type"] == "ET_REL"
    sections = list(file.iter_sections())
    starts, data, end = dict[int, int](), dict[int, bytearray](), _BASE
    for index, section in enumerate(sections):
        if section["sh_flags"] & _ALLOCATED and section["sh_size"]:
            starts[index] = end if relocatable else section["sh_addr"]
            end = (starts[index] + section["sh_size"] + _ALIGN) & -_ALIGN
            data[index] = bytearray(section.data() if section["sh_type"] != "SHT_NOBITS" else section["sh_size"])
    tables = [section for section in sections if section["sh_type"] in {"SHT_SYMTAB", "SHT_DYNSYM"}]
    symbols = [symbol for table in tables for symbol in table.iter_symbols()]
    if relocatable:
        _relocate(path, file, sections, starts, data)
    arrays = {
        index: MemoryPlace(sections[index].name, start, len(data[index]), bytes(data[index]))
        for index, start in starts.items()
        if not sections[index]["sh_flags"] & _WRITABLE
    }
    code = tuple(x for index, x in arrays.items() if sections[index]["sh_flags"] & _EXECUTABLE)
    functions = {
        symbol.name: (symbol["st_value"] + (starts[symbol["st_shndx"]] if relocatable else 0), symbol["st_size"])
        for symbol in symbols
        if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_shndx"] in starts
    }
    return ObjectFile(path, code, tuple(x for x in arrays.values() if x not in code), functions)


def _relocate(path: Path, file: Any, sections: list[Any], starts: dict[int, int], data: dict[int, bytearray]) -> None:
    """Apply relocations between sections of the object; those to other objects stay 0, where nothing can be."""
    for section in sections:
        target = section["sh_info"] if section["sh_type"] == "SHT_RELA" else -1
        if target not in data:
            continue
        symbols = file.get_section(section["sh_link"])
        for relocation in section.iter_relocations():
            symbol = symbols.get_symbol(relocation["r_info_sym"])
            kind, offset = relocation["r_info_type"], relocation["r_offset"]
            if symbol["st_shndx"] not in starts:
                continue
            value = starts[symbol["st_shndx"]] + symbol["st_value"] + relocation["r_addend"]
            size = _ABSOLUTE.get(kind) or _RELATIVE.get(kind)
            if size is None:
                raise ToolError(f"{path}: relocation {kind} in {sections[target].name} is not known")
            value -= starts[target] + offset if kind in _RELATIVE else 0
            data[target][offset : offset + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
