"""Runs the second checker (`independent.py`) on a kernel, and writes it out with everything that it reads.

The record that lies next to emitted C is the kernel's file with two more fields: `instructions`, the declarations of
its instructions, and `encodings`, the operands' encodings and the correction to them. So the checker needs no folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bitsynth.errors import Refuted
from bitsynth.files import MARK, mark
from bitsynth.isa.load import load
from bitsynth.paths import isa_folder
from bitsynth.proof import independent
from bitsynth.spec.matmul import MatmulOperand, MatmulSpec, affine

RECORD_END = ".kernel.json"
"""The end of the record's file name, after the name of the kernel."""
_READ_KEYS = ("forms", "in", "imm", "out", "lane", "store")
"""The fields of a declaration that the second checker reads."""


def recheck(name: str, fields: Mapping[str, Any], spec: MatmulSpec) -> tuple[list[str], str]:
    """Return the claims of the second checker of a kernel, or no claims and why it does not cover the kernel.

    Args:
        name: The kernel's name.
        fields: The kernel's file, as JSON.
        spec: The encodings under which the kernel is called.

    Raises:
        Refuted: The second checker does not accept what the first one accepted.
    """
    return _recheck(name, audit_record(fields, spec))


def _recheck(name: str, record: dict[str, Any]) -> tuple[list[str], str]:
    """Return the claims that hold of a record, or no claims and why the second checker does not cover its kernel."""
    try:
        return independent.check(record), ""
    except independent.NotCovered as why:
        return [], str(why)
    except independent.Wrong as why:
        raise Refuted(
            f"the two checkers disagree on {name}: proof/checker.py accepts it, but proof/independent.py, "
            f"which shares no code with it, does not: {why}"
        ) from None


def audit_record(fields: Mapping[str, Any], spec: MatmulSpec) -> dict[str, Any]:
    """Return the file of a kernel with the declarations of its instructions, and with encodings."""
    kernel = fields["kernel"]
    used = set(re.findall(r"\b(\w+)\.\w", json.dumps(kernel)))
    sets = [name for name in (load(kernel["isa"]).table.extends, kernel["isa"]) if name]
    instructions = [
        [name, {key: table[key] for key in _READ_KEYS if key in table}]
        for each in sets
        for name, table in independent.tables_of(isa_folder(each))
        if name in used
    ]
    encodings = {"act": _encode(spec.act), "wgt": _encode(spec.wgt), "correction": asdict(affine(spec))}
    return {"about": MARK, **fields, "encodings": encodings, "instructions": instructions}


def audit_files(name: str, fields: Mapping[str, Any], spec: MatmulSpec) -> dict[str, str]:
    """Return the second checker and its record by file name; none for a kernel that it does not cover.

    Refuted if it does not accept the kernel.
    """
    record = audit_record(fields, spec)
    if _recheck(name, record)[1]:
        return {}
    script = mark({f"{name}_check.py": Path(independent.__file__).read_text("utf-8")})
    return {**script, f"{name}{RECORD_END}": json.dumps(record, indent=1) + "\n"}


def _encode(operand: MatmulOperand) -> dict[str, Any]:
    return {"bits": operand.bits, "encoding": str(operand.encoding), "zero": operand.zero}
