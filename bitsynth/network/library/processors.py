"""A network for several processors as one C library, which chooses by the processor that it runs on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitsynth.emit.layer import POOL, require_name
from bitsynth.emit.processors import choice
from bitsynth.emit.render import render
from bitsynth.files import marked
from bitsynth.network.library.command import compile_command
from bitsynth.network.library.text import NetworkText

_SHARED_TEMPLATES = {
    "{}.h": "network.h.j2",
    "{}.c": "network_processors.c.j2",
    "{}_selftest.c": "network_processors_selftest.c.j2",
    "main.c": "network_main.c.j2",
    "CMakeLists.txt": "network_cmake.j2",
}


def processors_files(name: str, arch: str, texts: Mapping[str, NetworkText]) -> dict[str, str]:
    """Return the files around the libraries of each processor, `texts`, which lie in folders of their names.

    SpecError if no network can be called so.
    """
    require_name(name)
    every, first = [text.values for text in texts.values()], next(iter(texts.values()))
    command = compile_command(
        name, first.program, first.reading, cpus=[*texts], has_weights_file=first.has_weights_file
    )
    parts = [part for values in every for part in values["parts"]]
    plain = [f"{values['name']}/{file}" for values in every for file in values["plain"] if file != POOL]
    values: dict[str, Any] = {
        **every[0],
        "name": name,
        "command": command,
        **choice(arch, {cpu: text.name for cpu, text in texts.items()}),
        "plain": [f"{name}.c", *plain, f"{every[0]['name']}/{POOL}"],
        "parts": [{**part, "of": f"_{part['name']}", "folder": f"{part['name']}/"} for part in parts],
    }
    return marked({file.format(name): render(template, values) for file, template in _SHARED_TEMPLATES.items()})
