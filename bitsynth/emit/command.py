"""The command that writes a kernel, layer or network again, as the comment on top of its header has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

USUAL = {"act-encoding": "unsigned", "weight-encoding": "bipolar", "input-encoding": "unsigned"}
"""Values of options that need not be given."""


def command(name: str, operand: str, options: Mapping[str, Any]) -> str:
    """Return the line `bitsynth NAME OPERAND` with its options; options of value None, False, 0, "" are left out.

    True stands for an option without a value, a tuple for numbers with commas between them.
    """
    words = [f"bitsynth {name} {operand}"]
    for option, value in options.items():
        if value and value != USUAL.get(option):
            words.append(f"--{option}" if value is True else f"--{option} {_text(value)}")
    return " ".join(words)


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
