"""Hand-written inner loops, declared in `isa_specs/<isa>/baselines`, as instruction sets of their own.

`baselines.toml` has a table a baseline; the C of [NAME] is NAME.c, on `baseline.h`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from bitsynth import paths
from bitsynth.errors import SpecError
from bitsynth.isa.load import Isa

_HEADER = Path(__file__).parent / "baseline.h"


class BaselineTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table: the C function, its tile, requirements of compiler and processor.

    `peak` is the multiply-accumulates a cycle that a CPU's multipliers allow; `source` says how that is known.
    """

    doc: str
    function: Literal["fp32", "int8"]
    rows: int
    columns: int
    k_step: int
    cc_flags: list[str]
    host_features: list[str]
    peak: dict[str, float] = {}
    source: str = ""


@dataclass(frozen=True, eq=False)
class BaselineLoop:
    """One hand-written loop and the machine it is for: `isa` with the loop's own flags and features."""

    name: str
    table: BaselineTable
    isa: Isa
    files: Mapping[str, str]

    @property
    def tile(self) -> str:
        """The tile and K step, as `4x8x32`."""
        return f"{self.table.rows}x{self.table.columns}x{self.table.k_step}"

    @property
    def macros(self) -> list[str]:
        """The compiler flags that give the C its tile."""
        sizes = {"ROWS": self.table.rows, "COLUMNS": self.table.columns, "K_STEP": self.table.k_step}
        return [f"-D{name}={size}" for name, size in sizes.items()]


def load(isa: Isa) -> list[BaselineLoop]:
    """Return the baselines of `isa`, or if it declares none of the set it extends; SpecError if a file is wrong."""
    names = [name for name in (isa.name, isa.table.extends) if name]
    files = [paths.isa_folder(name) / "baselines" / "baselines.toml" for name in names]
    file = next((f for f in files if f.is_file()), None)
    if file is None:
        return []
    try:
        tables = msgspec.toml.decode(file.read_bytes(), type=dict[str, BaselineTable])
        return [_baseline(isa, name, table, file.with_name(f"{name}.c")) for name, table in tables.items()]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{file}: {error}") from None


def _baseline(isa: Isa, name: str, table: BaselineTable, source: Path) -> BaselineLoop:
    needs = msgspec.structs.replace(isa.table, cc_flags=table.cc_flags, host_features=table.host_features)
    files = {p.name: p.read_text(encoding="utf-8") for p in (_HEADER, source)}
    return BaselineLoop(name, table, Isa(needs, isa.instrs), files)
