"""Texts from the templates, laid out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from bitsynth.emit import lines

FOLDER = Path(__file__).parent / "templates"


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
    )
    made.filters["comment"] = lambda text: lines.comment(text) + "\n"
    made.globals["array"] = lines.array
    return made


def render(template: str, values: Mapping[str, Any]) -> str:
    """The text of one of the templates; C is laid out."""
    text = environment().get_template(template).render(values)
    return lines.laid_out(text) if template.endswith((".c.j2", ".h.j2")) else text
