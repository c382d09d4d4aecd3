"""The processor of this machine and its features."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from bitsynth.isa import architecture
from bitsynth.processes.child import Child

if TYPE_CHECKING:
    from bitsynth.isa.tables import IsaTable

_SECONDS = 60


def arch() -> str:
    """The processor architecture, as `isa.toml` spells it."""
    return architecture.here()


@lru_cache
def features() -> frozenset[str]:
    """The processor's features under the names of Linux's /proc/cpuinfo."""
    found = _darwin_features() if sys.platform == "darwin" else _linux_features()
    table = architecture.known().get(arch())
    names = table.feature_names if table else {}
    return found | {names[f] for f in found if f in names}


def lacking(wanted: Iterable[str]) -> list[str]:
    """The features of `wanted` that this processor lacks."""
    return [f for f in wanted if f.lower() not in features()]


def missing(isa: IsaTable) -> list[str]:
    """The features the base of `isa` needs and this processor lacks."""
    return lacking(isa.host_features)


def matches(isa: IsaTable) -> bool:
    """Whether code for `isa` runs here without an emulator."""
    return isa.arch == arch() and not missing(isa)


def _linux_features() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    lines = (line.partition(":") for line in text.splitlines())
    sets = [frozenset(v.lower().split()) for k, _, v in lines if k.strip() in {"flags", "Features"}]
    return frozenset.intersection(*sets) if sets else frozenset()


def _darwin_features() -> frozenset[str]:
    keys = ["machdep.cpu.features", "machdep.cpu.leaf7_features", "hw.optional"]
    with Child(["sysctl", *keys]) as child:  # It fails where one is unknown, and says the others.
        said = child.output(_SECONDS)[0].decode()
    table = architecture.known().get(arch())
    found = set(table.darwin_features if table else [])
    for line in said.lower().splitlines():
        key, _, value = line.partition(":")
        if key.startswith("machdep"):
            found |= set(value.replace(".", "_").split())
        elif value.strip() == "1":
            name = key.rpartition(".")[2]
            found |= {name, name.removeprefix("feat_")}
    return frozenset(found)
