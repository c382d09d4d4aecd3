"""The C of a layer for several processors of an architecture: it asks which one runs it, and calls its layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitsynth.emit.layer import LayerText
from bitsynth.emit.render import lay_out, render
from bitsynth.files import mark
from bitsynth.isa import architecture


@dataclass(frozen=True, eq=False)
class ProcessorsText:
    """A layer called `name` for several processors of an architecture, with the layer of each; some may share one.

    Any other processor runs the layer of the first whose features it has. `command` is the
    command that writes these files, "" if there is none.
    """

    name: str
    arch: str
    layers: Mapping[str, LayerText]
    command: str = ""

    def files(self) -> dict[str, str]:
        """Return file names and texts, marked as ours: each layer in a folder of its own, and what is around them."""
        values = self._values()
        own = {
            f"{self.name}.h": render("layer.h.j2", values),
            f"{self.name}.c": render("layer_processors.c.j2", values),
        }
        first = next(iter(self._apart)).name
        tests = {f"{self.name}_selftest.c": "layer_selftest.c.j2", "main.c": "layer_main.c.j2"}
        for file, template in tests.items():
            own[file] = f'#include "{first}_names.h"\n{render(template, values)}'
        cmake = {"CMakeLists.txt": render("layer_cmake.j2", values)}
        marked_files = mark({file: lay_out(text) for file, text in own.items()} | cmake)
        for layer in self._apart:
            marked_files |= {f"{layer.name}/{file}": text for file, text in layer.library().items()}
        return marked_files

    @property
    def _apart(self) -> list[LayerText]:
        """The different layers."""
        return list(dict.fromkeys(self.layers.values()))

    def _values(self) -> dict[str, Any]:
        layers = [layer.values for layer in self._apart]
        return {
            **layers[0],
            "name": self.name,
            "guard": f"{self.name.upper()}_H",
            "cpu": "",
            "command": self.command,
            **choice(self.arch, {cpu: layer.name for cpu, layer in self.layers.items()}),
            "plain": [f"{self.name}.c", *_plain(layers)],
            "folders": [layer.name for layer in self._apart],
            "parts": [_in_folder(values) for values in layers],
        }


def choice(arch: str, libraries: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a template that chooses among libraries by processor.

    SpecError if programs of the architecture cannot ask which processor runs them.
    """
    table, names = architecture.find_architecture(arch), list(dict.fromkeys(libraries.values()))
    return {
        "libraries": names,
        "processors": {cpu: names.index(name) for cpu, name in libraries.items()},
        "probe": table.midr_text(),
        "parts_of": dict(_parts(table.processors, libraries)),
    }


def _parts(processors: Mapping[str, Sequence[str]], included: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield implementer and part, as 0x41d03, of each of the `included` processors, with the processor's name."""
    for midr, names in processors.items():
        implementer, part = (int(word, 16) for word in midr.split())
        if cpu := next((name for name in names if name in included), ""):
            yield f"{implementer << 12 | part:#x}", cpu


def _plain(layers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the files that run on any processor; the last of a layer's, the pool, is there once."""
    for n, values in enumerate(layers):
        yield from (f"{values['name']}/{file}" for file in values["plain"][: -1 if n else None])


def _in_folder(values: Mapping[str, Any]) -> dict[str, Any]:
    (part,), name = values["parts"], values["name"]
    return {**part, "of": f"_{name}", "sources": [f"{name}/{file}" for file in part["sources"]]}
