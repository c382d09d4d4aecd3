"""A network as self-contained C files, for one processor, or for several: then the library chooses where it runs.

The header has the command that compiles the network to the same library again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from bitsynth.emit.c_names import POOL, rename_symbols, require_name
from bitsynth.emit.command import command
from bitsynth.emit.processors import choice
from bitsynth.emit.render import render
from bitsynth.files import mark
from bitsynth.isa.load import Requirements, load
from bitsynth.network.arena import ArenaPlan
from bitsynth.network.library import steps
from bitsynth.network.library.golden import Golden, digest
from bitsynth.network.library.parts import Parts
from bitsynth.network.library.steps import CStep, StepWriter
from bitsynth.network.library.weights import Weights
from bitsynth.network.program import NetworkProgram
from bitsynth.network.reading import Reading

_SHELL_NAME = re.compile(r"[A-Za-z0-9_.:/-]+")
"""Names that a shell takes as they are, and that end no comment of C."""


def _is_array(value: Any) -> bool:
    """Return whether the recorded value of a fixed input is more than a number."""
    return value is None or isinstance(value, list)


def _text_of_sizes(sizes: int | Sequence[int]) -> str:
    """Return sizes as the option --shape has them."""
    return str(sizes) if isinstance(sizes, int) else "x".join(map(str, sizes))


def compile_command(
    name: str,
    program: NetworkProgram,
    reading: Reading,
    *,
    cpus: Sequence[str] = (),
    has_weights_file: bool = False,
) -> str:
    """Return the command that writes the library `name` of a program, for its processor or for several `cpus`.

    `reading` says how the model file was read. The command is empty if inputs were fixed to
    arrays, which only Python can do, or if a name would have to be quoted.
    """
    codes, names = reading.codes, (*reading.fixed, *reading.shapes)
    if not all(map(_SHELL_NAME.fullmatch, names)) or any(map(_is_array, reading.fixed.values())):
        return ""
    options = {
        "isa": program.isa,
        "cpu": cpus or program.cpu,
        "threads": program.threads if program.threads > 1 else None,
        "batch": reading.batch,
        "reference": program.graph.reference,
        "input-bits": codes.bits if codes else None,
        "input-scale": codes.scale if codes and codes.scale != 1 else None,
        "input-encoding": codes.encoding if codes else None,
        "weights-file": has_weights_file,
        "name": name,
    }
    inputs = [f" --shape {each}={_text_of_sizes(sizes)}" for each, sizes in reading.shapes.items()]
    inputs += [f" --fix {each}={value}" for each, value in reading.fixed.items()]
    return f"{command('compile', 'MODEL.onnx', options)}{''.join(inputs)} -o FOLDER"


STATUSES = {"OK": 0, "ARENA": -2, "CODES": -3, "NULL": -5}
"""The statuses that a call returns, from `bs_layer.h`."""


@dataclass(frozen=True, eq=False)
class NetworkText:
    """The C of a program under `name`, with buffers at the places of a plan.

    `golden` has the numbers of its self-test, None for the default ones; weights are one binary file if
    `has_weights_file`, else C. `reading` says how the model file was read: the header names the command.
    """

    name: str
    program: NetworkProgram
    plan: ArenaPlan
    golden: Golden | None = None
    has_weights_file: bool = False
    reading: Reading = field(default_factory=Reading)

    def __post_init__(self) -> None:
        require_name(self.name)

    @cached_property
    def parts(self) -> Parts:
        """The C that steps share."""
        return Parts.of(self.program)

    @cached_property
    def _writer(self) -> StepWriter:
        return StepWriter(self.name, self.program, self.plan, self.parts)

    @cached_property
    def steps(self) -> list[CStep]:
        """The steps as C."""
        return self._writer.steps()

    @property
    def weight_bytes(self) -> int:
        """The bytes of all constants."""
        return self._weights.bytes

    @property
    def needs(self) -> Requirements:
        """The compiler flags and processor features that the code needs."""
        return self.parts.requirements

    def own(self) -> dict[str, str]:
        """Return the files of this network alone: header, steps, constants."""
        values = self.values
        return {
            f"{self.name}.h": render("network.h.j2", values),
            f"{self.name}.c": render("network.c.j2", values),
            **self._weights.files(self.name, binary=self.has_weights_file),
        }

    @property
    def binaries(self) -> dict[str, bytes]:
        """The file of weights, if they are not C."""
        return {f"{self.name}_weights.bin": self._weights.file} if self.has_weights_file else {}

    @property
    def _weights(self) -> Weights:
        """The constants of all steps, collected as the steps are written."""
        return self._writer.weights if self.steps else Weights()

    def files(self) -> dict[str, str]:
        """Return all files of the library, marked as ours; names shared with other networks get a prefix."""
        tested = render("network_selftest.c.j2", self.values | self._evaluate_test())
        return self._complete({f"{self.name}_selftest.c": tested})

    def get_untested(self) -> dict[str, str]:
        """Return these texts but for the self-test, whose numbers are evaluated from the graph."""
        return self._complete({})

    def _complete(self, further: Mapping[str, str]) -> dict[str, str]:
        """Return all texts: the network's own, `further` ones of it, and texts that it shares with others."""
        shared = self.parts.files(threads=True)
        own = {
            **self.own(),
            f"{self.name}_features.c": render("kernel_features.c.j2", self.values),
            **further,
            "main.c": render("network_main.c.j2", self.values),
            "CMakeLists.txt": render("network_cmake.j2", self.values),
        }
        return mark(own | shared | rename_symbols(self.name, {**own, **shared}, self.parts.symbols(shared)))

    @cached_property
    def values(self) -> dict[str, Any]:
        """The values of the templates."""
        isa, shared = load(self.program.isa), self.parts.files(threads=True)
        inputs, outputs = steps.inputs(self.program), steps.outputs(self.program)
        kernels, epilogues = list(self.parts.kernels), list(self.parts.epilogues)
        sources = sorted(n for n in (f"{self.name}.c", *shared) if n.endswith(".c") and n != POOL)
        return {
            "name": self.name,
            "command": compile_command(self.name, self.program, self.reading, has_weights_file=self.has_weights_file),
            "about": steps.escape_name(self.program.graph.name),
            "isa": isa.name,
            "cpu": self.program.cpu,
            "reference": self.program.graph.reference,
            "inputs": inputs,
            "outputs": outputs,
            "statuses": STATUSES,
            "parameters": _parameters(inputs, outputs),
            "passed": ", ".join(t.parameter for t in (*inputs, *outputs)),
            "steps": self.steps,
            "arena_bytes": self.plan.bytes,
            "bound": self.plan.bound,
            "scratch_bytes": max([0, *(getattr(s, "scratch_bytes", 0) for s in self.program.steps)]),
            "writes": self._first_writer,
            "weight_bytes": self.weight_bytes,
            "headers": self._headers(kernels, epilogues),
            "features": self.parts.features,
            "probe": isa.probe_text(self.needs.host),
            "plain": [f"{self.name}_weights.c", f"{self.name}_features.c", POOL],
            "parts": [{"of": "", "name": self.name, "folder": "", "sources": sources, "cc_flags": self.needs.cc_flags}],
            "has_weights_file": self.has_weights_file,
            "processors": {},
        }

    def _evaluate_test(self) -> dict[str, Any]:
        """Return the values that the self-test's template needs in addition."""
        golden = self.golden or Golden(self.program)
        digests = [
            (step, steps.escape_name(buffer.edge.name), self.plan.offsets[buffer.name], buffer.bytes, f"0x{want:016x}")
            for step, buffer, want in golden.digests()
        ]
        tables = [(t, steps.literals(x)) for t, x in zip(self.values["inputs"], golden.numbers, strict=True)]
        wanted = [(t, steps.literals(x)) for t, x in zip(self.values["outputs"], golden.outputs(), strict=True)]
        constants = [(k, at, x.size // 8, f"0x{digest(x):016x}") for k, at, x in self._weights.of_steps()]
        return {"digests": digests, "constants": constants, "tables": tables, "wanted": wanted}

    @property
    def _first_writer(self) -> int:
        """The first step that writes an output."""
        given = {*self.program.outputs}
        return next((k for k, s in enumerate(self.program.steps) if given & {*s.outputs}), len(self.program.steps))

    def _headers(self, kernels: Sequence[str], epilogues: Sequence[str]) -> list[str]:
        runtime = {"bs_exact.h", "bs_layer.h", *(["bs_glue.h"] if self.parts.has_glue else []), *self.parts.headers}
        runtime |= {"bs_matrices.h"} if self.parts.columns else set()
        own = [*(f"{k}_layer.h" for k in kernels), *(f"{k}_columns.h" for k in self.parts.columns)]
        return [*sorted(runtime), *own, *(f"{p}.h" for p in epilogues)]


def _parameters(read: Sequence[steps.CTensor], written: Sequence[steps.CTensor]) -> str:
    """Return the parameters of a call."""
    parameters = [f"const {t.ctype} *{t.parameter}" for t in read] + [f"{t.ctype} *{t.parameter}" for t in written]
    return ", ".join([*parameters, "void *arena", "size_t arena_bytes", "struct bs_pool *pool"])


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
    return mark({file.format(name): render(template, values) for file, template in _SHARED_TEMPLATES.items()})
