"""The C that steps of a network share: kernels, programs of epilogues and the runtime, each once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from weakref import WeakKeyDictionary

from bitsynth.emit.c_names import list_functions
from bitsynth.emit.column_packer import column_files
from bitsynth.emit.glue import VARIABLES, glue_program_source
from bitsynth.emit.layer_program import epilogue_source
from bitsynth.emit.runtime_files import glue_files, matrix_files, network_files, runtime_files
from bitsynth.errors import SpecError
from bitsynth.isa.load import Requirements, load
from bitsynth.kernel.elementwise.program import EpilogueProgram
from bitsynth.kernel.straight_line import needs
from bitsynth.layers.glue.programs import programs, requirements
from bitsynth.layers.packed import PackedLayer
from bitsynth.matmul import MatmulKernel
from bitsynth.network.program import GlueStep, LayerStep, NetworkProgram, PlainStep

_INCLUDED = re.compile(r'^#include "(.+)"$', re.MULTILINE)
_NAMED = re.compile(r"\bbs_\w+")
_DECLARED = re.compile(r"^bs_glue_line ([^;]+);", re.MULTILINE)


@dataclass(eq=False)
class Parts:
    """The C that steps of a program share, gathered step by step."""

    isa: str
    kernels: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Files of each kernel by its name, what it lacks of a processor apart."""
    columns: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Files that pack columns at run time, by the name of their kernel."""
    epilogues: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Files of each epilogue's program by its name."""
    needs: list[Requirements] = field(default_factory=list)
    sets: set[str] = field(default_factory=set)
    """Instruction sets of kernels, narrower ones than the network's among them."""
    layers: dict[int, tuple[str, dict[str, str]]] = field(default_factory=dict)
    """The names of each layer that was asked for, by its `id`: the program keeps it."""
    has_glue: bool = False
    headers: set[str] = field(default_factory=set)
    """Headers of the runtime that plain steps include."""

    @classmethod
    def of(cls, program: NetworkProgram) -> Parts:
        """Return the parts of all steps."""
        if program not in _known:
            _known[program] = cls._gather(program)
        return _known[program]

    @classmethod
    def _gather(cls, program: NetworkProgram) -> Parts:
        parts = cls(program.isa)
        for step in program.steps:
            if isinstance(step, LayerStep):
                parts.layer_names(step.layer)
            elif isinstance(step, GlueStep):
                parts._add_glue(step)
            else:
                parts._add_plain(step)
        return parts

    def layer_names(self, layer: PackedLayer) -> tuple[str, dict[str, str]]:
        """Return the names of a layer's kernel and of its programs, the latter by their fields of `struct bs_layer`."""
        if id(layer) not in self.layers:
            self.layers[id(layer)] = self._name(layer)
        return self.layers[id(layer)]

    def _name(self, layer: PackedLayer) -> tuple[str, dict[str, str]]:
        self.needs += [layer.plan.kernel.needs, *map(needs, layer.programs.proved)]
        self.sets.add(layer.plan.kernel.spec.isa)
        return self._kernel(layer), {
            f: self._epilogue(p, orders=layer.programs.orders(f)) for f, p in layer.programs.by_field.items()
        }

    def _kernel(self, layer: PackedLayer) -> str:
        source = layer.plan.kernel.source_for(layer.programs.reader)
        files = {f"{source.name}.h": source.header, f"{source.name}.c": source.source, **source.layer_header}
        name = _keep(self.kernels, source.name, files)
        if layer.codes is None:
            assert isinstance(layer.plan.kernel, MatmulKernel)
            own = column_files(layer.plan.kernel.entry.kernel, layer.plan.kernel.spec)
            self.columns[name] = {_as(source.name, name, n): _as(source.name, name, x) for n, x in own.items()}
        return name

    def _epilogue(self, program: EpilogueProgram, *, orders: bool) -> str:
        name = f"bs_{program.name}_{'ordered_' if orders else ''}epilogue"
        return _keep(self.epilogues, name, epilogue_source(name, program, orders=orders))

    def _add_glue(self, step: GlueStep) -> None:
        if step.glue.isa != self.isa:
            raise SpecError(f"{step.glue!r} is for {step.glue.isa}, in a network for {self.isa}")
        self.has_glue = True
        self.needs.append(requirements(self.isa))

    def _add_plain(self, step: PlainStep) -> None:
        self.headers |= set(step.headers)

    @property
    def requirements(self) -> Requirements:
        """Return the compiler flags that all parts need; of flags such as -march, the instruction set's own."""
        every = [load(self.isa).requirements(), *self.needs]
        flags: dict[str, str] = {}
        for flag in (f for n in every for f in n.cc_flags):
            flags.setdefault(flag.partition("=")[0] if "=" in flag else flag, flag)
        macros, host = (tuple(dict.fromkeys(x for n in every for x in getattr(n, k))) for k in ("macros", "host"))
        return Requirements(macros, tuple(flags.values()), host)

    @property
    def features(self) -> list[tuple[str, str]]:
        """Return the processor features that all parts need, and the C that tests each."""
        probes = {f: text for name in (self.isa, *self.sets) for f, text in load(name).table.probes.items()}
        return [(f, probes[f]) for f in self.requirements.host]

    def files(self, *, threads: bool) -> dict[str, str]:
        """Return all files, with the thread pool if there are `threads`."""
        parts = self.kernels, self.columns, self.epilogues
        own = {name: text for part in parts for x in part.values() for name, text in x.items()}
        return {**own, **self._runtime(threads)}

    def _runtime(self, threads: bool) -> dict[str, str]:
        layers, glue = runtime_files(threads=threads), glue_files(threads=threads)
        files = {n: t for n, t in layers.items() if n.startswith("bs_pool")}
        if self.layers:
            files |= layers
        if self.columns:
            files |= matrix_files()
        if self.has_glue:
            files |= {**glue, **_glue_programs(self.isa)}
        available = {**layers, **glue, **network_files()}
        return files | _with_included(available, {"bs_exact.h", "bs_layer.h", *self.headers})

    def symbols(self, files: Mapping[str, str]) -> list[str]:
        """Return the names of external linkage in `files` without the pool's, which differ between networks."""
        names = list_functions({n: t for n, t in files.items() if n.startswith("bs_")})
        names += [x.strip() for t in files.values() for m in _DECLARED.findall(t) for x in m.split(",")]
        own = (*self.kernels, *self.epilogues)
        names += [x for x in {*_NAMED.findall("".join(files.values()))} if x.startswith(own)]
        if self.has_glue:
            names += [*VARIABLES, *(p.name for p in programs(self.isa))]
        return sorted({*names})


_known: WeakKeyDictionary[NetworkProgram, Parts] = WeakKeyDictionary()


@cache
def _glue_programs(isa: str) -> Mapping[str, str]:
    return glue_program_source(programs(isa))


def _with_included(files: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return the files of these names and the headers that they include."""
    included: dict[str, str] = {}
    left = [*names]
    while left:
        name = left.pop()
        included[name] = files[name]
        left += [x for x in _INCLUDED.findall(files[name]) if x in files and x not in included]
    return included


def _keep(parts: dict[str, Mapping[str, str]], name: str, files: Mapping[str, str]) -> str:
    """Return the name under which a part is kept: its own, or a new one if another text has that name."""
    number, chosen, renamed = 1, name, files
    while parts.setdefault(chosen, renamed) != renamed:
        number += 1
        chosen = f"{name}_{number}"
        renamed = {_as(name, chosen, file): _as(name, chosen, text) for file, text in files.items()}
    return chosen


def _as(old: str, new: str, text: str) -> str:
    """Return the text with a name, and names that begin with it, changed."""
    renamed = re.sub(rf"\b{old}", new, text)
    return re.sub(rf"\b{old.upper()}", new.upper(), renamed)
