"""The set with matrix registers, with plain C (`matrix_emulator.h`) in place of its instructions on matrices."""

from __future__ import annotations

import re
from pathlib import Path

from bitsynth import paths

REAL = "avx512_amx"
EMULATED = "avx512_emulated"
HEADER = Path(__file__).parent / "matrix_emulator.h"
_TEXTS = {
    "cc_flags": f'["-mavx512vnni", "-include{HEADER}"]',
    "host": '["avx512_vnni"]',
    "permission": "'static int matrices_allowed(void) { return 1; }'",
    "configure": "'emulate_ldtilecfg({x});'",
    "release": "'emulate_tilerelease();'",
    "zero": "'emulate_tilezero({t});'",
    "load": "'emulate_tileloadd({t}, {p}, {stride});'",
    "multiply": "'emulate_tdpbusd({acc}, {a}, {b});'",
    "store": "'emulate_tilestored({t}, {p}, {stride});'",
}


def write_set(folder: Path) -> None:
    """Write the set to a folder for BITSYNTH_ISA: the shipped one, but for its name and the C of matrices."""
    text = (paths.isa_folder(REAL) / "isa.toml").read_text()
    text = text.replace(f'name = "{REAL}"', f'name = "{EMULATED}"')
    text = re.sub(r"permission = '''.*?'''", "permission = ''", text, flags=re.DOTALL)
    lines = text.splitlines()
    for key, value in _TEXTS.items():
        (at,) = (n for n, line in enumerate(lines) if line.startswith(f"{key} = "))
        lines[at] = f"{key} = {value}"
    (folder / EMULATED).mkdir(parents=True)
    (folder / EMULATED / "isa.toml").write_text("\n".join(lines) + "\n")
    record = (paths.isa_folder(REAL) / "checked.json").read_text()
    (folder / EMULATED / "checked.json").write_text(record)
