"""An ELF object or library as memory: code and constants of its functions, relocated."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import gcd
from pathlib import Path
from typing import Any

from bitsynth.errors import SpecError, ToolError
from bitsynth.objects.affine import BaseAddress
from bitsynth.objects.declared import MachineTable
from bitsynth.objects.memory import MemoryPlace, NotShown

EXTERNAL_FUNCTIONS = ("memcpy", "memmove", "memset")
"""Functions of the C library whose calls are understood: `external.py` has their effects."""
INSTALL = "proving objects needs capstone and pyelftools: pip install 'bitsynth[objects]'"
END = 1 << 32
"""The most bytes of memory that the sections of a file take."""
_FIRST = 0x10000
"""The lowest address of a section of an object."""
PAGE = 0x1000
"""The bytes that a process loads or protects as one; an object is loaded a multiple of them from its own addresses."""
_RELOCATED = 8
"""The most bytes that a relocation of a library changes."""
_FIELD = 4
"""Bytes of the instruction that has a field which a relocation fills."""
_LONGEST = 15
"""The most bytes of an instruction."""
_FIXED = ".data.rel.ro"
"""The beginning of the names of sections that are written when they are loaded, and constant from then on."""
_SLOT = 8
"""Bytes of an address that code reads from memory."""
_ROOM, _SPACE = 1 << 20, 16
"""Bytes between all else and functions of the C library, and from one of these to the next."""
_EXECUTABLE, _ALLOCATED, _WRITABLE, _MERGED = 0x4, 0x2, 0x1, 0x10


@dataclass(frozen=True)
class ObjectPart:
    """A part of an object that stays together wherever it is loaded: bytes `start` to `end`, at distances from `base`.

    A library is one part. Of an object that is not linked each section is, and each constant of a section whose
    constants the linker may exchange for equal ones. `origin` is where `base` is here.
    """

    base: BaseAddress
    origin: int
    start: int
    end: int


@dataclass(frozen=True)
class ObjectFile:
    """The sections of an object at addresses, and the addresses and sizes of its functions.

    Attributes:
        base: The number that was added to all addresses.
        plain: Where the sections of the file lie: start, end, and start with base 0 and default alignment.
        functions: Functions that a program can find by name.
        symbols: Names, addresses and sizes of all functions, including functions that no other object sees.
        unknown: By the address of a byte of code: the symbol that decides the byte when the object is loaded.
        parts: The parts that stay together in every process.
        distances: By the address of a byte that has a distance from where it is to a part: where the field of the
            distance begins, and the part.
        externals: Names of functions of the C library that the object calls, by the address that they get here.
        imports: Addresses of functions, by the address of the number that a library's loader replaces by the function's
            address.
    """

    path: Path
    base: int
    code: tuple[MemoryPlace, ...]
    constants: tuple[MemoryPlace, ...]
    functions: dict[str, tuple[int, int]]
    symbols: tuple[tuple[str, int, int], ...]
    unknown: Mapping[int, str]
    plain: tuple[tuple[int, int, int], ...]
    parts: tuple[ObjectPart, ...]
    distances: Mapping[int, tuple[int, ObjectPart]]
    externals: Mapping[int, str] = field(default_factory=dict)
    imports: Mapping[int, int] = field(default_factory=dict)

    def part_at(self, address: int) -> ObjectPart:
        """Return the part that an address of code is in; NotShown if there is none."""
        part = next((x for x in self.parts if x.start <= address < x.end), None)
        if part is None:
            raise NotShown("it runs into what is no code of the object")
        return part

    def require_known(self, address: int, size: int) -> None:
        """Raise NotShown if another object decides a byte of an instruction."""
        for name in (self.unknown[k] for k in range(address, address + size) if k in self.unknown):
            raise NotShown(f"it needs {name}")

    def in_file(self, address: int) -> int:
        """Return the address that code or a constant has with base 0, wherever it was loaded."""
        places = (plain + address - start for start, end, plain in self.plain if start <= address <= end)
        return next(places, address - self.base)

    def instruction_bytes(self, address: int) -> bytes:
        """Return the code from `address` on, as long as the longest instruction; NotShown if there is none."""
        for array in self.code:
            if array.start <= address < array.start + array.size and array.known is not None:
                first = address - array.start
                return array.known[first : first + _LONGEST]
        raise NotShown("it runs into what is no code of the object")

    def in_memory(self, in_file: int) -> int:
        """Return the loaded address of an address with base 0."""
        places = ((start, in_file - plain, end - start) for start, end, plain in self.plain)
        return next((start + at for start, at, size in places if 0 <= at <= size), in_file + self.base)

    def function_at(self, address: int) -> tuple[str, int, int] | None:
        """Return name, address and size of the function that an address is in; None if it is in none."""
        return next((x for x in self.symbols if x[1] <= address < x[1] + x[2]), None)

    def function(self, name: str) -> int:
        """Return the address of a function; SpecError if the object has none of that name."""
        if name in self.functions:
            return self.functions[name][0]
        some = ", ".join(sorted(self.functions)[:3])
        raise SpecError(f"{self.path} has no function {name}; " + (f"it has {some}" if some else "it has no symbols"))


def read_object(
    path: Path,
    table: MachineTable,
    base: int = 0,
    *,
    even: bool = False,
    elsewhere: Mapping[str, int] | None = None,
) -> ObjectFile:
    """Return the object at `path`, loaded `base` bytes, a multiple of a page, behind its least address.

    Sections that are not linked yet lie at odd multiples of their alignment, or with `even` at even ones. With the
    addresses of what is `elsewhere`, by name, the object is linked: its code and constants hold addresses.
    SpecError if it is none of the architecture, ToolError if pyelftools is missing.
    """
    with open_elf(path) as file:
        return _Reader(path, file, table, base, even=even, elsewhere=elsewhere).read()


def places_of(path: Path, table: MachineTable, base: int = 0, *, even: bool = False) -> tuple[dict[str, int], int]:
    """Return the addresses of what an object has that others can find, by name, and the first page behind the object.

    Arguments and errors are as for `read_object`.
    """
    with open_elf(path) as file:
        return _Reader(path, file, table, base, even=even, elsewhere=None).places()


@contextmanager
def open_elf(path: Path) -> Iterator[Any]:
    """Yield a file as pyelftools has it; SpecError if what the block reads is damaged, ToolError without pyelftools."""
    try:
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile
    except ImportError:
        raise ToolError(INSTALL) from None
    try:
        with path.open("rb") as file:
            yield ELFFile(file)
    except (ELFError, OSError) as error:
        raise SpecError(f"{path}: want an ELF object or library: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, MemoryError, struct.error):
        raise SpecError(f"{path}: want an ELF object or library; its tables are damaged") from None


def _next_page(address: int) -> int:
    """Return the first multiple of a page at or behind an address."""
    return address + PAGE - 1 & -PAGE


class _Reader:
    """One file that is read: its sections, and where they are placed."""

    def __init__(
        self,
        path: Path,
        file: Any,
        table: MachineTable,
        base: int,
        *,
        even: bool,
        elsewhere: Mapping[str, int] | None,
    ) -> None:
        self._path, self._file, self._table, self._base, self._even = path, file, table, base, even
        self._elsewhere = elsewhere
        self._sections = list(file.iter_sections())
        self._starts: dict[int, int] = {}
        self._plain: dict[int, int] = {}
        self._data: dict[int, bytearray] = {}
        self._unknown: dict[int, str] = {}
        self._parts: dict[str, ObjectPart] = {}
        self._distances: dict[int, tuple[int, ObjectPart]] = {}
        self._slots: dict[int, int] = {}
        self._externals: dict[str, int] = {}
        self._imports: dict[int, int] = {}

    def places(self) -> tuple[dict[str, int], int]:
        """Return the addresses of global symbols by name, and the first page behind all sections."""
        self._place(relocatable=True)
        symbols = [x for s in self._sections if s["sh_type"] == "SHT_SYMTAB" for x in s.iter_symbols()]
        visible = [x for x in symbols if x["st_info"]["bind"] != "STB_LOCAL" and x["st_shndx"] in self._starts]
        places = {x.name: self._starts[x["st_shndx"]] + x["st_value"] for x in visible}
        return places, _next_page(self._behind + _SLOT * len(symbols))

    @property
    def _behind(self) -> int:
        """The first page behind all sections, and a page between: there slots begin, which hold addresses."""
        return _next_page(max([self._base, *(at + len(self._data[k]) for k, at in self._starts.items())]) + PAGE)

    def read(self) -> ObjectFile:
        """Return sections with values and functions with addresses."""
        kind, machine = self._file["e_type"], self._file["e_machine"]
        if machine != self._table.elf or kind not in {"ET_REL", "ET_DYN"}:
            raise SpecError(f"{self._path}: want an object or a library of {self._table.elf}, not {kind} of {machine}")
        relocatable = kind == "ET_REL"
        self._place(relocatable)
        if relocatable:
            for section in self._sections:
                self._relocate(section)
        else:
            self._check_relocations()
        arrays = {
            index: MemoryPlace(self._sections[index].name, start, len(self._data[index]), bytes(self._data[index]))
            for index, start in self._starts.items()
            if not self._writable(index)
        }
        code = tuple(x for index, x in arrays.items() if self._sections[index]["sh_flags"] & _EXECUTABLE)
        constants = tuple(x for x in arrays.values() if x not in code)
        if self._slots:
            slots = b"".join(address.to_bytes(_SLOT, "little") for address in self._slots)
            constants += (MemoryPlace("addresses", self._behind, len(slots), slots),)
        inner = [x for s in self._sections if s["sh_type"] == "SHT_SYMTAB" for x in s.iter_symbols()]
        dynamic = [x for table in self._dynamic() for x in table.iter_symbols()]
        # Other objects find global symbols, `dlsym` finds symbols of the dynamic table, whatever type they have.
        visible = [x for x in inner if x["st_info"]["bind"] != "STB_LOCAL"] if relocatable else dynamic
        counts = Counter(x.name for x in visible)
        unique = [x for x in visible if self._is_function(x) and counts[x.name] == 1]
        functions = {x.name: self._span(x, relocatable) for x in unique}
        symbols = tuple((x.name, *self._span(x, relocatable)) for x in (*inner, *dynamic) if self._is_function(x))
        plain = tuple((at, at + len(self._data[k]), self._plain[k]) for k, at in self._starts.items())
        return ObjectFile(
            self._path, self._base, code, constants, functions, symbols, self._unknown, plain,
            self._all_parts(relocatable), self._distances,
            {at: name for name, at in self._externals.items()}, self._imports,
        )  # fmt: skip

    def _all_parts(self, relocatable: bool) -> tuple[ObjectPart, ...]:
        if relocatable:
            return (*map(self._part, self._starts), *self._parts.values())
        starts = self._starts
        low, high = min(starts.values(), default=0), max((x + len(self._data[k]) for k, x in starts.items()), default=0)
        return (ObjectPart(BaseAddress("object", PAGE), self._base, low, high),)

    def _part(self, index: int, at: int | None = None) -> ObjectPart:
        """Return the part that is a section of an object that is not linked, or the constant at `at` of a section."""
        section, start = self._sections[index], self._starts[index]
        name, align, size = f"{section.name} {index}", max(1, section["sh_addralign"]), len(self._data[index])
        if at is not None and section["sh_flags"] & _MERGED and (each := section["sh_entsize"]):
            first = at // each * each
            name, start, size, align = f"{name} {first}", start + first, min(each, size - first), gcd(align, each)
        part = ObjectPart(BaseAddress(name, align), start, start, start + size)
        return self._parts.setdefault(name, part) if at is not None else part

    def _is_function(self, symbol: Any) -> bool:
        return symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_shndx"] in self._starts

    def _span(self, symbol: Any, relocatable: bool) -> tuple[int, int]:
        """Return the address and the size of a function."""
        base = self._starts[symbol["st_shndx"]] if relocatable else self._base
        return base + symbol["st_value"], symbol["st_size"]

    def _dynamic(self) -> list[Any]:
        """Return the dynamic tables of a library: what a process reads of it besides its segments."""
        tables = [x for x in self._file.iter_segments() if x["p_type"] == "PT_DYNAMIC"]
        for table in tables:
            once = [tag["d_tag"] for tag in table.iter_tags() if tag["d_tag"] not in {"DT_NEEDED", "DT_NULL"}]
            loaded = self._is_loaded(table["p_vaddr"], table["p_offset"], table["p_filesz"])
            if len(tables) > 1 or not loaded or len(set(once)) < len(once):
                raise SpecError(f"{self._path}: its dynamic table is damaged")
        return tables

    def _writable(self, index: int) -> bool:
        section = self._sections[index]
        fixed = self._elsewhere is not None and section.name.startswith(_FIXED)
        return bool(section["sh_flags"] & _WRITABLE) and not fixed

    def _place(self, relocatable: bool) -> None:
        """Give sections addresses: in a library the addresses of its header, in an object one after the other."""
        end, plain_end = self._base + _FIRST, _FIRST
        for index, section in enumerate(self._sections):
            size = section["sh_size"]
            if not section["sh_flags"] & _ALLOCATED or not size:
                continue
            start, plain = self._base + section["sh_addr"], section["sh_addr"]
            if relocatable:
                align = max(1, section["sh_addralign"])
                start, plain = (-(-x // (2 * align)) * 2 * align for x in (end, plain_end))
                start, plain = start + align * (not self._even), plain + align
            end, plain_end = (max(x, (y + size + PAGE) & -PAGE) for x, y in ((end, start), (plain_end, plain)))
            if end - self._base > END:
                raise SpecError(f"{self._path}: its sections take {end - self._base:#x} bytes; want up to {END:#x}")
            data = section.data() if section["sh_type"] != "SHT_NOBITS" else bytes(size)
            if len(data) != size:
                raise SpecError(f"{self._path} is truncated: {section.name} has {len(data)} of {size} bytes")
            loaded = section["sh_type"] != "SHT_NOBITS" and self._is_loaded(
                section["sh_addr"], section["sh_offset"], size
            )
            if not relocatable and not self._writable(index) and not loaded:
                raise SpecError(f"{self._path}: {section.name} is not loaded where its header says")
            self._starts[index], self._plain[index], self._data[index] = start, plain, bytearray(data)

    def _other(self, symbol: Any) -> int | None:
        """Return the address that a function of the C library gets, behind all else; None for another symbol."""
        if symbol.name not in EXTERNAL_FUNCTIONS or self._elsewhere is not None:
            return None
        return self._externals.setdefault(symbol.name, self._behind + _ROOM + _SPACE * len(self._externals))

    def _is_loaded(self, address: int, offset: int, size: int) -> bool:
        """Return whether a segment, and no other, puts bytes of the file at their address: a process loads segments."""
        loads = [x for x in self._file.iter_segments() if x["p_type"] == "PT_LOAD"]
        over = [
            x
            for x in loads
            if x["p_vaddr"] & -PAGE < address + size and address < (x["p_vaddr"] + x["p_memsz"] + PAGE - 1) & -PAGE
        ]
        return len(over) == 1 and (
            0 <= address - over[0]["p_vaddr"] <= over[0]["p_filesz"] - size
            and address - over[0]["p_vaddr"] == offset - over[0]["p_offset"]
        )

    def _relocate(self, section: Any) -> None:
        """Apply the relocations of a section.

        Bytes that hold an address of the object, or of another, are unknown: nobody knows where it will be loaded.
        """
        from elftools.elf.descriptions import describe_reloc_type

        target = section["sh_info"]
        if section["sh_type"] not in {"SHT_REL", "SHT_RELA"} or target not in self._data or self._writable(target):
            return
        symbols = self._file.get_section(section["sh_link"])
        fields = {field.type: field for field in self._table.fields.values()}
        section_is_code = bool(self._sections[target]["sh_flags"] & _EXECUTABLE)
        for relocation in section.iter_relocations():
            number, offset = relocation["r_info_type"], relocation["r_offset"]
            kind, field = describe_reloc_type(number, self._file), fields.get(number)
            by_slot = self._elsewhere is not None and kind in self._table.slots
            sizes = self._table.absolute | self._table.relative | (self._table.slots if by_slot else {})
            size = _FIELD if field else sizes.get(kind)
            if size is None or not relocation.is_RELA():
                kind = kind if kind.startswith("R_") else f"of type {number}"
                raise SpecError(f"{self._path}: relocation {kind} in {self._sections[target].name} is not known")
            symbol = symbols.get_symbol(relocation["r_info_sym"])
            section_of = symbol["st_shndx"]
            inside, is_number = section_of in self._starts, section_of == "SHN_ABS"
            external = self._other(symbol) if section_is_code else None
            other = (self._elsewhere or {}).get(symbol.name, external) if section_of == "SHN_UNDEF" else None
            known = inside or other is not None
            if not (known if field or kind in self._table.relative or self._elsewhere is not None else is_number):
                name = symbol.name or (self._sections[section_of].name if inside else "a symbol")
                where = "another object" if not (inside or is_number) else "memory"
                if not section_is_code:
                    raise SpecError(f"{self._path}: constants hold the address of {name}, of {where}")
                at = self._starts[target] + offset
                self._unknown |= dict.fromkeys(range(at, at + size), f"{name}, which is in {where}")
                continue
            of_symbol = self._starts.get(section_of, 0) + symbol["st_value"] if other is None else other
            value = (self._slot(of_symbol) if by_slot else of_symbol) + relocation["r_addend"]
            at = self._starts[target] + offset
            if field:
                word = int.from_bytes(self._data[target][offset : offset + size], "little")
                filled = field.fill(word, value, at, self._table.page)
                if filled is None:
                    raise SpecError(f"{self._path}: {symbol.name or 'a symbol'} is where a relocation cannot point")
                value = filled
                if inside:
                    self._note_distance(at, size, target, symbol, by_page=field.of != "distance")
            elif kind in self._table.relative or by_slot:
                value -= at
                if inside and not by_slot:
                    self._note_distance(at, size, target, symbol)
            if not field and self._elsewhere is not None and not -1 <= value >> 8 * size - 1 <= 0:
                name = f"{symbol.name or 'a symbol'}, whose address does not fit into {size} bytes"
                self._unknown |= dict.fromkeys(range(at, at + size), name)
            self._data[target][offset : offset + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")

    def _slot(self, address: int) -> int:
        """Return where an address lies, from which code reads it."""
        return self._behind + _SLOT * self._slots.setdefault(address, len(self._slots))

    def _note_distance(self, at: int, size: int, of: int, symbol: Any, *, by_page: bool = False) -> None:
        """Note that the bytes at `at`, of section `of`, are a distance to the part that a symbol is in.

        With `by_page` they depend on the place of the symbol in a page, as they may in the same section.
        """
        index = symbol["st_shndx"]
        merged = self._sections[index]["sh_flags"] & _MERGED
        if index == of and not merged and not by_page:
            return
        if merged and symbol["st_info"]["type"] == "STT_SECTION":  # It depends on the linker which constant this is.
            part = ObjectPart(BaseAddress("a constant", 1), self._starts[index], 0, 0)
        else:
            part = self._part(index, symbol["st_value"])
        self._distances |= dict.fromkeys(range(at, at + size), (at, part))

    def _check_relocations(self) -> None:
        """Refuse a library whose code or constants change when it is loaded; note functions whose address is data."""
        from elftools.elf.descriptions import describe_reloc_type

        writable = [
            (start, start + len(self._data[index])) for index, start in self._starts.items() if self._writable(index)
        ]
        for dynamic in self._dynamic():
            for relocations in dynamic.get_relocation_tables().values():
                for relocation in relocations.iter_relocations():
                    at = self._base + relocation["r_offset"]
                    if not any(start <= at and at + _RELOCATED <= end for start, end in writable):
                        raise SpecError(f"{self._path}: bytes at {at:#x}, not of data, are changed when it is loaded")
                    kind = describe_reloc_type(relocation["r_info_type"], self._file)
                    if kind in self._table.imports and relocation["r_addend"] == 0:
                        self._note_slot(at, dynamic.get_symbol(relocation["r_info_sym"]))

    def _note_slot(self, at: int, symbol: Any) -> None:
        """Note the function whose address the loader puts at `at`: one of the C library, or of this file."""
        if symbol["st_shndx"] == "SHN_UNDEF":
            address = self._other(symbol)
            if address is not None:
                self._imports[at] = address
        elif self._is_function(symbol):
            self._imports[at] = self._span(symbol, relocatable=False)[0]
