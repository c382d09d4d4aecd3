"""An AArch64 ELF shared library as memory, relocated to where an emulator loads it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bitsynth.errors import ToolError

BASE = 0x10_0000_0000
_ABS64, _GLOB_DAT, _JUMP_SLOT, _RELATIVE = 257, 1025, 1026, 1027
_PAGE = 0x10000


@dataclass
class Segment:
    """Bytes at a page-aligned address; `access` is made of r, w and x."""

    address: int
    data: bytearray
    access: str


@dataclass
class Image:
    """A loaded library: its memory and its symbols' addresses."""

    path: Path
    segments: list[Segment] = field(default_factory=list)
    symbols: dict[str, int] = field(default_factory=dict)

    def address(self, symbol: str) -> int:
        try:
            return self.symbols[symbol]
        except KeyError:
            raise ToolError(f"{self.path} has no function {symbol!r}") from None


def read_image(path: Path) -> Image:
    """Read the shared library at `path`; ToolError if it needs what no emulator here has."""
    try:
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile
    except ImportError:
        raise ToolError("running under an emulator needs pyelftools: pip install 'bitsynth[emulator]'") from None
    try:
        with path.open("rb") as file:
            return _load(path, ELFFile(file))
    except (ELFError, OSError) as error:
        raise ToolError(f"cannot load {path}: {error}") from None


def _load(path: Path, elf: Any) -> Image:
    if elf["e_machine"] != "EM_AARCH64" or elf["e_type"] != "ET_DYN":
        raise ToolError(f"{path} is no AArch64 shared library")
    image = Image(path, [_segment(s) for s in elf.iter_segments("PT_LOAD")])
    table = elf.get_section_by_name(".dynsym")
    symbols = list(table.iter_symbols()) if table else []
    image.symbols = {s.name: BASE + s["st_value"] for s in symbols if s.name and s["st_shndx"] != "SHN_UNDEF"}
    for offset, kind, symbol, addend in _relocations(path, elf):
        _store(image, BASE + offset, _resolve(image, kind, symbols[symbol], addend))
    return image


def _segment(segment: Any) -> Segment:
    start = BASE + segment["p_vaddr"]
    first = start & -_PAGE
    end = (start + segment["p_memsz"] + _PAGE - 1) & -_PAGE
    data = bytearray(end - first)
    data[start - first : start - first + segment["p_filesz"]] = segment.data()
    flags = segment["p_flags"]
    return Segment(first, data, "".join(c for c, bit in (("r", 4), ("w", 2), ("x", 1)) if flags & bit))


def _relocations(path: Path, elf: Any) -> Iterator[tuple[int, int, int, int]]:
    for section in elf.iter_sections():
        kind = section["sh_type"]
        if kind in {"SHT_INIT_ARRAY", "SHT_RELR"} and section["sh_size"]:
            raise ToolError(f"{path} has a section {section.name}, which the emulators' loader does not know")
        if kind == "SHT_RELA" and section["sh_flags"] & 2:
            for r in section.iter_relocations():
                yield r["r_offset"], r["r_info_type"], r["r_info_sym"], r["r_addend"]


def _resolve(image: Image, kind: int, symbol: Any, addend: int) -> int:
    if kind == _RELATIVE:
        return BASE + addend
    if kind not in {_ABS64, _GLOB_DAT, _JUMP_SLOT}:
        raise ToolError(f"{image.path} has a relocation of type {kind}, which the emulators' loader does not know")
    if symbol.name in image.symbols:
        return image.symbols[symbol.name] + addend
    if symbol["st_info"]["bind"] == "STB_WEAK":
        return 0
    raise ToolError(
        f"{image.path} needs the function {symbol.name!r}, which emulated code has not; "
        "set BITSYNTH_RUNNER when compiling, too"
    )


def _store(image: Image, address: int, value: int) -> None:
    for segment in image.segments:
        offset = address - segment.address
        if 0 <= offset <= len(segment.data) - 8:
            struct.pack_into("<Q", segment.data, offset, value & (1 << 64) - 1)
            return
    raise ToolError(f"{image.path} relocates {address - BASE:#x}, which is in no segment")
