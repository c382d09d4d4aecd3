"""Rendering of templates, with C laid out."""

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


class _TemplateCache(jinja2.FileSystemBytecodeCache):
    """Cache of compiled templates next to them, as Python caches modules: skipped where writing is not allowed."""

    def __init__(self) -> None:
        super().__init__(str(FOLDER / "__pycache__"))

    def dump_bytecode(self, bucket: Bucket) -> None:
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                Path(self.directory).mkdir(exist_ok=True)
                super().dump_bytecode(bucket)


@cache
def environment() -> jinja2.Environment:
    """Return the environment of C templates: no escaping, and an undefined name is an error."""
    jinja = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        bytecode_cache=_TemplateCache(),
    )
    jinja.filters["comment"] = lambda text: lines.comment(text) + "\n"
    jinja.globals["array"] = lines.array
    return jinja


def render(template: str, values: Mapping[str, Any]) -> str:
    """Return the text of a template, laid out if it is C."""
    text = environment().get_template(template).render(values)
    return lines.lay_out(text) if template.endswith((".c.j2", ".h.j2")) else text
