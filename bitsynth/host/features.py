"""The processor of this machine: architecture and features."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from bitsynth.isa import architecture
from bitsynth.processes.child import Child

if TYPE_CHECKING:
    from bitsynth.isa.tables import IsaTable

_SECONDS = 60
_AT_HWCAP = 16
_CPUINFO = Path("/proc/cpuinfo")


@lru_cache
def arch() -> str:
    """Return the architecture of this process as `isa.toml` spells it; the system's own word if it is unknown."""
    machine, bits = platform.machine().lower(), sys.maxsize.bit_length() + 1
    tables = architecture.load_architectures().items()
    return next((name for name, a in tables if machine in a.machines and a.bits == bits), machine)


@lru_cache
def features() -> frozenset[str]:
    """Return the processor's features under their names in Linux's /proc/cpuinfo."""
    return with_other_names(arch(), _darwin_features() if sys.platform == "darwin" else _linux_features())


def cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def with_other_names(arch: str, features: frozenset[str]) -> frozenset[str]:
    """Return features of a processor of the architecture under every name that they have."""
    table = architecture.load_architectures().get(arch)
    names = table.feature_names if table else {}
    return features | {names[f] for f in features if f in names}


def lacking(wanted: Iterable[str]) -> list[str]:
    """Return the features of `wanted` that this processor lacks."""
    return [f for f in wanted if f.lower() not in features()]


def missing(isa: IsaTable) -> list[str]:
    """Return the features that the base of `isa` needs and this processor lacks."""
    return lacking(isa.wanted_features)


def matches(isa: IsaTable) -> bool:
    """Return whether code for `isa` runs on this processor without an emulator."""
    return isa.arch == arch() and not missing(isa)


def _linux_features() -> frozenset[str]:
    """Return the features in /proc/cpuinfo; features that AT_HWCAP has too are taken from there.

    Features that the system refuses this process are left out.
    """
    table = architecture.load_architectures().get(arch())
    hwcap = table.hwcap if table else {}
    if not hwcap:
        listed, permissions = _cpuinfo_features("flags"), table.permissions if table else {}
        return listed - {f for f, call in permissions.items() if f in listed and not _is_allowed(call)}
    return _cpuinfo_features("Features") - hwcap.keys() | _hwcap_features(hwcap)


def _is_allowed(call: Sequence[int]) -> bool:
    """Return whether Linux gives this process a feature, for which it is asked by a system call."""
    import ctypes

    result: int = ctypes.CDLL(None).syscall(*map(ctypes.c_long, call))
    return result == 0


def _cpuinfo_features(key: str) -> frozenset[str]:
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    lines = (line.partition(":") for line in text.splitlines())
    sets = [frozenset(v.lower().split()) for k, _, v in lines if k.strip() == key]
    return frozenset.intersection(*sets) if sets else frozenset()


def _hwcap_features(hwcap: Mapping[str, int]) -> frozenset[str]:
    """Return the features whose bits AT_HWCAP has.

    Under an emulator of programs /proc/cpuinfo may describe another processor.
    """
    import ctypes

    getauxval = ctypes.CDLL(None).getauxval
    getauxval.restype, getauxval.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    word = getauxval(_AT_HWCAP)
    return frozenset(name for name, bit in hwcap.items() if word >> bit & 1)


def _darwin_features() -> frozenset[str]:
    keys = ["machdep.cpu.features", "machdep.cpu.leaf7_features", "hw.optional"]
    with Child(["sysctl", *keys]) as child:  # It fails if a key is unknown, and prints the others.
        text = child.output(_SECONDS)[0].decode()
    table = architecture.load_architectures().get(arch())
    features = set(table.darwin_features if table else [])
    for line in text.lower().splitlines():
        key, _, value = line.partition(":")
        if key.startswith("machdep"):
            features |= set(value.replace(".", "_").split())
        elif value.strip() == "1":
            name = key.rpartition(".")[2]
            features |= {name, name.removeprefix("feat_")}
    return frozenset(features)
