"""An ELF shared library as memory, relocated to where an emulator loads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bitsynth.errors import ToolError
from bitsynth.isa.architecture import Emulator


@dataclass
class Segment:
    """Bytes at a page-aligned address; `access` is made of r, w and x."""

    address: int
    data: bytearray
    access: str


@dataclass
class Image:
    """A loaded library: its memory and its symbols' addresses. Words are `bits` wide."""

    path: Path
    bits: int
    rules: Emulator
    segments: list[Segment] = field(default_factory=list)
    symbols: dict[str, int] = field(default_factory=dict)

    def place(self, region: int) -> int:
        """Return the start of the numbered region of the address space; the library is in the first."""
        return self.rules.region * region

    @property
    def base(self) -> int:
        """The address of the library."""
        return self.place(1)

    def address(self, symbol: str) -> int:
        """Return the address of `symbol`; ToolError if the library has none."""
        try:
            return self.symbols[symbol]
        except KeyError:
            raise ToolError(f"{self.path} has no function {symbol!r}") from None


def read_image(path: Path, bits: int, rules: Emulator) -> Image:
    """Return the shared library at `path`, as memory; ToolError if it needs what no emulator here has."""
    try:
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile
    except ImportError:
        raise ToolError("running under an emulator needs pyelftools: pip install 'bitsynth[emulator]'") from None
    try:
        with path.open("rb") as file:
            return _load(Image(path, bits, rules), ELFFile(file))
    except (ELFError, OSError) as error:
        raise ToolError(f"cannot load {path}: {error}") from None


def _load(image: Image, file: Any) -> Image:
    path = image.path
    if file["e_machine"] != image.rules.machine or file.elfclass != image.bits or file["e_type"] != "ET_DYN":
        raise ToolError(f"{path} is no shared library of {image.bits}-bit {image.rules.machine}")
    image.segments = [_segment(image.base, s) for s in file.iter_segments("PT_LOAD")]
    table = file.get_section_by_name(".dynsym")
    symbols = list(table.iter_symbols()) if table else []
    image.symbols = {s.name: image.base + s["st_value"] for s in symbols if s.name and s["st_shndx"] != "SHN_UNDEF"}
    for offset, kind, symbol, addend in _relocations(path, file):
        place = image.base + offset
        _store(image, place, _resolve(image, kind, symbols[symbol], _read(image, place) if addend is None else addend))
    return image


def _segment(base: int, segment: Any) -> Segment:
    start, page = base + segment["p_vaddr"], segment["p_align"]
    first = start & -page
    end = (start + segment["p_memsz"] + page - 1) & -page
    data = bytearray(end - first)
    data[start - first : start - first + segment["p_filesz"]] = segment.data()
    flags = segment["p_flags"]
    return Segment(first, data, "".join(c for c, bit in (("r", 4), ("w", 2), ("x", 1)) if flags & bit))


def _relocations(path: Path, file: Any) -> Iterator[tuple[int, int, int, int | None]]:
    """Yield offset, type, symbol and addend of each; an addend of None is in the place itself."""
    for section in file.iter_sections():
        kind = section["sh_type"]
        if kind in {"SHT_INIT_ARRAY", "SHT_RELR"} and section["sh_size"]:
            raise ToolError(f"{path} has a section {section.name}, which the emulators' loader does not know")
        if kind in {"SHT_RELA", "SHT_REL"} and section["sh_flags"] & 2:
            for r in section.iter_relocations():
                yield r["r_offset"], r["r_info_type"], r["r_info_sym"], r["r_addend"] if r.is_RELA() else None


def _resolve(image: Image, kind: int, symbol: Any, addend: int) -> int:
    rules = image.rules
    if kind == rules.relative:
        return image.base + addend
    if kind != rules.absolute and kind not in rules.slots:
        raise ToolError(f"{image.path} has a relocation of type {kind}, which the emulators' loader does not know")
    if symbol.name in image.symbols:
        return image.symbols[symbol.name] + (addend if kind == rules.absolute else 0)
    if symbol["st_info"]["bind"] == "STB_WEAK":
        return 0
    raise ToolError(
        f"{image.path} needs the function {symbol.name!r}, which emulated code has not; "
        "set BITSYNTH_RUNNER when compiling, too"
    )


def _read(image: Image, address: int) -> int:
    return int.from_bytes(_word(image, address), "little")


def _store(image: Image, address: int, value: int) -> None:
    word = _word(image, address)
    word[:] = (value & (1 << image.bits) - 1).to_bytes(len(word), "little")


def _word(image: Image, address: int) -> memoryview:
    """Return the word at `address`."""
    for segment in image.segments:
        offset = address - segment.address
        if 0 <= offset <= len(segment.data) - image.bits // 8:
            return memoryview(segment.data)[offset : offset + image.bits // 8]
    raise ToolError(f"{image.path} relocates {address - image.base:#x}, which is in no segment")
