"""The machine's instructions in a compiled library, function by function."""

import re
from collections.abc import Iterator
from pathlib import Path

import capstone
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Symbol, SymbolTableSection

MODES = {
    "x64": (capstone.CS_ARCH_X86, capstone.CS_MODE_64),
    "AArch64": (capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM),
    "ARM": (capstone.CS_ARCH_ARM, capstone.CS_MODE_ARM),
}
VECTOR = re.compile(r"\b(?:[vqds]|[xyz]mm)\d+")
"""A vector register; a mnemonic such as `add` is a scalar instruction's too."""
GENERAL = re.compile(r"\bx\d+")
"""A general-purpose register of AArch64, of 64 bits."""


def mnemonics(library: Path, registers: re.Pattern[str] = VECTOR) -> dict[str, set[str]]:
    """By the name of every function of an ELF file, the mnemonics of its instructions on such registers.

    Without what follows a point, as the types of `vadd.i8`.
    """
    with library.open("rb") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".symtab")
        assert isinstance(table, SymbolTableSection)
        symbols = [s for s in table.iter_symbols() if s["st_info"]["type"] == "STT_FUNC"]
        return {s.name: set(_mnemonics(elf, s, registers)) for s in symbols if s["st_size"]}


def _mnemonics(elf: ELFFile, symbol: Symbol, registers: re.Pattern[str]) -> Iterator[str]:
    arch, mode = MODES[elf.get_machine_arch()]
    thumb = arch == capstone.CS_ARCH_ARM and symbol["st_value"] & 1
    decoder = capstone.Cs(arch, capstone.CS_MODE_THUMB if thumb else mode)
    decoder.skipdata = True
    for _, _, mnemonic, operands in decoder.disasm_lite(_code(elf, symbol, thumb), 0):
        if registers.search(operands):
            yield mnemonic.partition(".")[0]


def _code(elf: ELFFile, symbol: Symbol, thumb: int) -> bytes:
    section = elf.get_section(symbol["st_shndx"])
    start = symbol["st_value"] - thumb - section["sh_addr"]
    return section.data()[start : start + symbol["st_size"]]
