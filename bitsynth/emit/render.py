"""Texts from the templates, laid out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2.bccache import Bucket

from bitsynth.emit import lines

FOLDER = Path(__file__).parent / "templates"


class _BesideTemplates(jinja2.FileSystemBytecodeCache):
    """Compiled templates, kept as Python keeps modules: not where it may not write, or is told not to."""

    def __init__(self) -> None:
        super().__init__(str(FOLDER / "__pycache__"))

    def dump_bytecode(self, bucket: Bucket) -> None:
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                Path(self.directory).mkdir(exist_ok=True)
                super().dump_bytecode(bucket)


@cache
def environment() -> jinja2.Environment:
    """Templates of C, not escaped; a name that is not given is an error."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        bytecode_cache=_BesideTemplates(),
    )
    made.filters["comment"] = lambda text: lines.comment(text) + "\n"
    made.globals["array"] = lines.array
    return made


def render(template: str, values: Mapping[str, Any]) -> str:
    """The text of one of the templates; C is laid out."""
    text = environment().get_template(template).render(values)
    return lines.lay_out(text) if template.endswith((".c.j2", ".h.j2")) else text
