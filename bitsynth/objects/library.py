"""A compiled library: the objects that it is made of, how much code each has, and the functions that they define.

A library is an archive of objects, or one object or shared library.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitsynth.errors import SpecError
from bitsynth.files import read_file
from bitsynth.objects.declared import MachineTable
from bitsynth.objects.elf import open_elf

MAX_BYTES = 1 << 30
"""The most bytes of a library."""
_ARCHIVE, _THIN = b"!<arch>\n", b"!<thin>\n"
_HEADER = 60
"""Bytes before each member of an archive: its name (16 bytes), its size (10 bytes at 48), and a mark at the end."""
_SIZE = slice(48, 58)
_MARK = b"`\n"
_TABLES = {"/", "/SYM64/", "__.SYMDEF", "__.SYMDEF SORTED"}
"""Members that are an index of symbols."""
_LONG_NAMES = "//"
_EXECUTABLE = 0x4


@dataclass(frozen=True)
class LibraryObject:
    """An object of an archive, or a library that is no archive.

    Attributes:
        name: Its name in the archive, with a number if an object before it has the same; else the name of the file.
        path: Where it can be read.
        functions: The number of its functions.
        bytes: The bytes of its sections of code.
        defined: Functions that other objects can find, by name.
        compilers: The compilers' names and versions, as they wrote them.
    """

    name: str
    path: Path
    functions: int
    bytes: int
    defined: frozenset[str]
    compilers: tuple[str, ...]


@dataclass(frozen=True)
class CompiledLibrary:
    """A library that was read: where it is, its SHA-256 digest, and its objects."""

    path: Path
    digest: str
    objects: tuple[LibraryObject, ...]

    def defining(self, function: str) -> LibraryObject:
        """Return the object that has a function; SpecError if none has it, or several."""
        having = [each for each in self.objects if function in each.defined]
        if len(having) == 1:
            return having[0]
        if having:
            raise SpecError(f"{self.path}: {len(having)} of its objects have a function {function}")
        some = ", ".join(sorted(name for each in self.objects for name in each.defined)[:2]) or "none"
        raise SpecError(
            f"{self.path} has no function {function}; it has {some}: it is the library of another network, or its "
            "compiler put the function into others"
        )

    @property
    def compilers(self) -> list[str]:
        """Names and versions that compilers wrote into the objects, each once."""
        return list(dict.fromkeys(text for each in self.objects for text in each.compilers))


def read_library(path: Path, table: MachineTable, folder: Path) -> CompiledLibrary:
    """Return the library at `path`; objects of an archive are written into `folder`.

    SpecError if it is none of the architecture or is damaged, ToolError if pyelftools is missing.
    """
    try:
        data = read_file(path, MAX_BYTES)
    except OSError as error:
        raise SpecError(f"{path}: want a library: {error.strerror or error}") from None
    digest = hashlib.sha256(data).hexdigest()
    if not data.startswith((_ARCHIVE, _THIN)):
        return CompiledLibrary(path, digest, (_read_object(path.name, path, table),))
    objects, names = [], Counter[str]()
    for number, (name, content) in enumerate(_members(path, data)):
        names[name] += 1
        own = folder / str(number) / (re.sub(r"[^\w.+-]", "_", name) or "object")
        own.parent.mkdir(parents=True)
        own.write_bytes(content)
        try:
            unique = name if names[name] == 1 else f"{name} ({names[name]})"
            objects.append(_read_object(unique, own, table))
        except SpecError as error:
            raise SpecError(f"{path}: {str(error).replace(str(own), name)}") from None
    return CompiledLibrary(path, digest, tuple(objects))


def _members(path: Path, data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of an archive's objects; SpecError if it is damaged, or only names its objects."""
    if data.startswith(_THIN):
        raise SpecError(f"{path} is a thin archive, which has the names of its objects alone: want the objects")
    at, long_names = len(_ARCHIVE), b""
    while at < len(data):
        header = data[at : at + _HEADER]
        size_text = header[_SIZE].strip()
        if len(header) < _HEADER or header[58:60] != _MARK or not size_text.isdigit():
            raise SpecError(f"{path} is no archive: its table is damaged at byte {at}")
        first, size = at + _HEADER, int(size_text)
        content = data[first : first + size]
        if len(content) < size:
            raise SpecError(f"{path} is truncated: an object at byte {first} has {len(content)} of {size} bytes")
        at = first + size + size % 2
        name = header[:16].decode("utf-8", "replace").rstrip(" ")
        if name == _LONG_NAMES:
            long_names = content
            continue
        if name.startswith("#1/") and name[3:].isdigit():  # The name lies before the object.
            name, content = content[: int(name[3:])].decode("utf-8", "replace").rstrip("\0"), content[int(name[3:]) :]
        elif name[1:].isdigit() and name.startswith("/"):
            name = long_names[int(name[1:]) :].partition(b"\n")[0].decode("utf-8", "replace")
        if name not in _TABLES:
            yield name.removesuffix("/"), content


def _read_object(name: str, path: Path, table: MachineTable) -> LibraryObject:
    """Return what the object at `path` has; SpecError if it is none of the architecture, is stripped or damaged."""
    with open_elf(path) as file:
        kind, machine = file["e_type"], file["e_machine"]
        if machine != table.elf or kind not in {"ET_REL", "ET_DYN"}:
            raise SpecError(f"{path}: want an object or a library of {table.elf}, not {kind} of {machine}")
        sections = list(file.iter_sections())
        code = {k for k, x in enumerate(sections) if x["sh_flags"] & _EXECUTABLE and x["sh_type"] == "SHT_PROGBITS"}
        tables = [x for x in sections if x["sh_type"] in {"SHT_SYMTAB", "SHT_DYNSYM"}]
        if code and not any(x["sh_type"] == "SHT_SYMTAB" for x in tables):
            raise SpecError(f"{path} was stripped of the names of its functions; want it as it was compiled")
        functions = {x["sh_type"]: list(_functions(x, code)) for x in tables}
        places = {(x["st_shndx"], x["st_value"]) for some in functions.values() for x in some}
        visible = functions.get("SHT_DYNSYM" if kind == "ET_DYN" else "SHT_SYMTAB", [])
        defined = frozenset(x.name for x in visible if x["st_info"]["bind"] != "STB_LOCAL")
        notes = [x.data() for x in sections if x.name == ".comment"]
        return LibraryObject(
            name,
            path,
            len(places),
            sum(sections[k]["sh_size"] for k in code),
            defined,
            tuple(text.decode("utf-8", "replace") for note in notes for text in note.split(b"\0") if text),
        )


def _functions(table: Any, code: Collection[int]) -> Iterator[Any]:
    """Yield the symbols of a table that are functions in the sections `code`."""
    return (x for x in table.iter_symbols() if x["st_info"]["type"] == "STT_FUNC" and x["st_shndx"] in code)
