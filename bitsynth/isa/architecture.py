"""Processor architectures as data: `isa_specs/architectures.toml`, one table each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from bitsynth import paths
from bitsynth.errors import SpecError
from bitsynth.isa import toml

_WORDS = (32, 64)
_REGIONS = 16
"""Regions an address space must have."""


class Qemu(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """qemu's user mode: its programs, the Debian package, the `macros` of `run/support/driver.c`.

    `cpu` maps a compiler flag to the processor that has no more than the flag allows, ""
    to the one for any other code.
    """

    programs: list[str]
    package: str
    cpu: dict[str, str]
    macros: dict[str, str | int]


class Unicorn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """unicorn, by the names of its constants; `cpu` as for qemu.

    `module` has the constants of the architecture. A call passes its first words in the
    registers `arguments` and the others on the stack; the first is also the result.
    `registers` are set once. `instruction_bytes` is 0 if instructions differ in size.
    """

    module: str
    arch: str
    mode: str
    cpu: dict[str, str]
    arguments: list[str]
    stack: str
    link: str
    counter: str
    registers: dict[str, int] = {}
    instruction_bytes: int = 0


class Emulator(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The memory layout and relocations with which a library runs under an emulator.

    Code, stack, arrays and the address a call returns to lie at multiples of `region`.
    `machine` is the ELF header's; `absolute`, `slots` and `relative` are the types of
    relocations to symbol + addend, to a symbol, and to base + addend.
    """

    region: int
    machine: str
    absolute: int
    slots: list[int]
    relative: int
    qemu: Qemu
    unicorn: Unicorn


class Architecture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A processor architecture: `bits` of a pointer, names `machines` that systems call it.

    `vector_constraint` is the constraint of inline assembly that a vector register fulfils. With `memory_operands` an
    instruction that computes can read one operand in memory.

    Cross compilers: names of gcc, flags of clang and of zig, the Debian `package`; `zig_cpu`
    is how zig spells what follows `-march=`. `feature_names` are other names of features
    of Linux's /proc/cpuinfo, `darwin_features` those no macOS machine lists, `hwcap` the bits of AT_HWCAP that tell
    them too. `processors` maps implementer and part of Arm's MIDR, or x86's vendor, family and model (`Facts.kind`),
    or words that these begin with, to processors of an `isa.toml`, the nearest first. `midr_probe` is the C file next
    to this one that reads a MIDR, "" if programs cannot.
    `int8_instructions` are the instructions that products of bytes use, by the processor's feature, the fastest first.
    `probe` is the C file on which the `probes` of an `isa.toml` rest. `permissions` are the features that Linux gives
    to processes that ask: the number of the system call, and its arguments.
    """

    bits: int
    probe: str
    machines: list[str]
    gcc: list[str]
    clang: list[str]
    zig: list[str]
    package: str
    vector_constraint: str = "m"
    memory_operands: bool = False
    zig_cpu: dict[str, str] = {}
    feature_names: dict[str, str] = {}
    darwin_features: list[str] = []
    hwcap: dict[str, int] = {}
    processors: dict[str, list[str]] = {}
    midr_probe: str = ""
    int8_instructions: dict[str, str] = {}
    permissions: dict[str, list[int]] = {}
    emulator: Emulator | None = None

    def nearest_processor(self, kind: str, among: Collection[str]) -> str:
        """Return the processor `among` an instruction set's that is nearest to a machine's; "" if none is.

        Given "GenuineIntel family 6 model 207" and a set with the costs of "zen5" and "skylake". Result: "skylake", by
        the key "GenuineIntel".
        """
        words = kind.split()
        keys = (" ".join(words[:count]) for count in range(len(words), 0, -1))
        names = next((self.processors[key] for key in keys if key in self.processors), [])
        return next((name for name in names if name in among), "")

    def probe_text(self) -> str:
        """Return the C text that asks the processor which features it has."""
        return _text(paths.architectures().parent / self.probe)

    def midr_text(self) -> str:
        """Return the C text that asks which processor it is; SpecError if programs cannot."""
        if not self.midr_probe:
            raise SpecError("programs of this architecture cannot ask which processor it is")
        return _text(paths.architectures().parent / self.midr_probe)


@lru_cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def load_architectures() -> Mapping[str, Architecture]:
    """Return the architectures by name, as the `arch` of an `isa.toml` spells it: the shipped ones and the user's."""
    return _load_architectures(paths.architectures(), paths.user_architectures())


@lru_cache
def _load_architectures(shipped: Path, own: tuple[Path, ...]) -> Mapping[str, Architecture]:
    tables = read(shipped)
    for path in own:
        for name, table in read(path).items():
            if name in tables:
                raise SpecError(f"{path}: {name}: another file declares an architecture of that name")
            files = {key: str(path.parent / file) for key in ("probe", "midr_probe") if (file := getattr(table, key))}
            tables[name] = msgspec.structs.replace(table, **files)
    return tables


def find_architecture(name: str) -> Architecture:
    """Return the architecture `name`; SpecError if there is none."""
    try:
        return load_architectures()[name]
    except KeyError:
        raise SpecError(
            f"unknown arch {name!r}; {paths.architectures()} has {', '.join(load_architectures())}"
        ) from None


def emulated_cpu(cpus: Mapping[str, str], flags: Iterable[str]) -> str:
    """Return the processor to emulate for code compiled with `flags`; of flags of one name the last counts."""
    last = {f.partition("=")[0]: f for f in flags}
    return next((cpus[f] for f in last.values() if f in cpus), cpus[""])


def read(path: Path) -> dict[str, Architecture]:
    """Return the architectures in the file `path`; SpecError says what is wrong in it."""
    tables = toml.decode(path, dict[str, Architecture])
    for name, table in tables.items():
        _check(f"{path}: {name}", table)
        for key, file in {"probe": table.probe, "midr_probe": table.midr_probe or table.probe}.items():
            if not (path.parent / file).is_file():
                raise SpecError(f"{path}: {name}: {key} is {file!r}; want a file next to this one")
    return tables


def _check(where: str, table: Architecture) -> None:
    if table.bits not in _WORDS:
        raise SpecError(f"{where}: bits is {table.bits}; want {' or '.join(map(str, _WORDS))}")
    if table.emulator:
        _check_emulator(f"{where}: emulator", table.bits, table.emulator)


def _check_emulator(where: str, bits: int, table: Emulator) -> None:
    if not 0 < table.region * _REGIONS <= 1 << bits:
        raise SpecError(f"{where}: region is {table.region:#x}; {_REGIONS} of them must fit in {bits} bits")
    if not (table.qemu.programs and table.unicorn.arguments):
        raise SpecError(f"{where}: want one or more of qemu.programs and of unicorn.arguments")
    if not ("" in table.qemu.cpu and "" in table.unicorn.cpu):
        raise SpecError(f'{where}: want an entry "" in qemu.cpu and unicorn.cpu, the processor for any other code')
