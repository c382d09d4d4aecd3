"""Runs of the C text of instruction forms on the machine itself, or on an emulator of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bitsynth import toolchain
from bitsynth.conformance.inputs import Coverage, FormTrial
from bitsynth.conformance.values import U64
from bitsynth.errors import Refuted
from bitsynth.host.facts import here
from bitsynth.host.placement import runs_natively
from bitsynth.isa import architecture
from bitsynth.isa.domains.concrete import ConcreteDomain
from bitsynth.isa.floats import INFINITY, NAN, SIGN
from bitsynth.isa.instr import Instr
from bitsynth.isa.load import Isa, Requirements
from bitsynth.isa.types import VecType
from bitsynth.run.runner import Runner, runner_for
from bitsynth.toolchain.compiler import get_preferred

_CHUNK = 400
_RECORDS = 1 << 13
"""Records compared at a time: their lanes fit in the first cache."""


@dataclass(frozen=True, eq=False)
class Capture:
    """The machine's results for a batch of `args`: uint64 arrays of shape (lanes, records).

    `coverage` is for all batches of the form and the immediate.
    """

    form: str
    imm: int
    coverage: Coverage
    args: list[U64]
    out: U64

    @property
    def records(self) -> int:
        """The number of inputs."""
        return int(self.out.shape[1])


@dataclass(frozen=True)
class Failure:
    """The first input on which a declared meaning is not the machine's."""

    form: str
    imm: int
    args: tuple[tuple[int, ...], ...]
    got: tuple[int, ...]
    want: tuple[int, ...]

    def __str__(self) -> str:
        given = ", ".join(_hex(a) for a in self.args)
        return f"{self.form} n={self.imm} on {given}: the machine gives {_hex(self.got)}, the lane {_hex(self.want)}"


def _hex(lanes: Sequence[int]) -> str:
    return "[" + " ".join(f"{x:x}" for x in lanes) + "]"


def captures(
    isa: Isa, forms: Sequence[Instr], compiler: toolchain.Compiler | None = None
) -> tuple[str, Iterator[Capture]]:
    """Return a description of compiler and machine, and their results in batches, by form and immediate.

    Without forms there is nothing to describe: both are empty.

    Refuted if a processor runs the forms, and a probe of theirs says that it cannot.
    """
    groups = [(group, _start_runner(isa, group)) for group in compile_libraries(isa, forms, compiler)]
    if not groups:
        return "", iter(())
    by = f"{groups[0][0].compiler.version}, {groups[0][1].description}"
    by += f", in a system run by {emulator}" if (emulator := here().emulator) else ""
    return by, chain.from_iterable(_run_all(group, runner) for group, runner in groups)


@dataclass(frozen=True, eq=False)
class Compiled:
    """A library of forms of one feature set, compiled with its flags alone: a form of another does not compile.

    Function `t_K` runs the form, in one of its C texts, and the immediate of `jobs[K]`; `bs_has_K` asks for the feature
    `asked[K]`.
    """

    library: Path
    compiler: toolchain.Compiler
    jobs: tuple[tuple[Instr, int], ...]
    needs: Requirements
    asked: tuple[str, ...]


def compile_libraries(isa: Isa, forms: Sequence[Instr], compiler: toolchain.Compiler | None = None) -> list[Compiled]:
    """Return the libraries that test `forms`, one a feature set, by `compiler` or the preferred one."""
    compiler = compiler or get_preferred(isa)
    features = dict.fromkeys(form.feature for form in forms)
    return [_compile_libraries(isa, [form for form in forms if form.feature == f], compiler) for f in features]


def _compile_libraries(isa: Isa, forms: Sequence[Instr], compiler: toolchain.Compiler) -> Compiled:
    jobs = tuple((replace(form, text=text), imm) for form in forms for imm in form.imms for text in form.texts)
    needs = isa.requirements(form.name for form in forms)
    asked = needs.host if runs_natively(isa.table) else ()
    sources = {**_sources(isa, jobs), **({"probes.c": _probes(isa, asked)} if asked else {})}
    library = toolchain.compile_for(isa, sources, needs=needs, flags=["-O1"], compiler=compiler)
    return Compiled(library, compiler, jobs, needs, asked)


def _start_runner(isa: Isa, group: Compiled) -> Runner:
    """Return the runner of the group's functions; Refuted if a probe denies what the processor has."""
    runner = runner_for(isa, group.library, needs=group.needs)
    _require_probes(isa, runner, group.asked)
    return runner


def _probes(isa: Isa, features: Sequence[str]) -> str:
    """Return a function for each of `features`, which asks for it as emitted C does.

    Not for emulators, without a system.
    """
    probes = enumerate(isa.table.probes[f] for f in features)
    asking = (f"int bs_has_{k}(void);\nint bs_has_{k}(void) {{ return {c}; }}\n" for k, c in probes)
    return architecture.find_architecture(isa.table.arch).probe_text() + "".join(asking)


def _require_probes(isa: Isa, runner: Runner, features: Sequence[str]) -> None:
    for k, feature in enumerate(features):
        if not runner.call(f"bs_has_{k}", bits=32):
            raise Refuted(f"{isa.name}: this processor has {feature}, but {isa.table.probes[feature]} says it has not")


def differs(instr: Instr, capture: Capture) -> Failure | None:
    """Return the first record of `capture` that `instr`'s lane expression does not give."""
    for start in range(0, capture.records, _RECORDS):
        args, out = [a[:, start : start + _RECORDS] for a in capture.args], capture.out[:, start : start + _RECORDS]
        lanes = instr(ConcreteDomain(), [list(a) for a in args], capture.imm)
        want = np.stack([np.broadcast_to(x, out.shape[1]) for x in lanes])
        wrong = np.flatnonzero(((want != out) & ~_free(instr, want, out)).any(axis=0))
        if wrong.size:
            at = int(wrong[0])
            given = tuple(_record(a, at) for a in args)
            return Failure(instr.name, capture.imm, given, _record(out, at), _record(want, at))
    return None


def _free(instr: Instr, want: U64, out: U64) -> NDArray[np.bool_]:
    """Return the lanes that are NaN where they should not be; which NaN a lane holds is unspecified."""
    if not instr.any_nan:
        return np.zeros(want.shape, np.bool_)
    both: NDArray[np.bool_] = (want == NAN) & (out & np.uint64(SIGN - 1) > INFINITY)
    return both


def _record(lanes: U64, at: int) -> tuple[int, ...]:
    return tuple(int(x) for x in lanes[:, at])


def _run_all(group: Compiled, runner: Runner) -> Iterator[Capture]:
    try:
        for k, (form, imm) in enumerate(group.jobs):
            trial = FormTrial(form, imm)
            for args in trial.batches():
                yield Capture(form.name, imm, trial.coverage, args, _run(runner, k, form, args))
    finally:
        runner.close()


def _run(runner: Runner, k: int, instr: Instr, args: Sequence[U64]) -> U64:
    count = args[0].shape[1]
    given = np.concatenate([_to_bytes(a, o.type) for a, o in zip(args, instr.operands, strict=True)], axis=1)
    out = np.zeros((count, instr.out.total_bits // 8), dtype=np.uint8)
    runner.call(f"t_{k}", given, out, count)
    return _from_bytes(out, instr.out)


def _to_bytes(lanes: U64, kind: VecType) -> NDArray[np.uint8]:
    return np.ascontiguousarray(lanes.T.astype(f"<u{kind.bits // 8}")).view(np.uint8)


def _from_bytes(data: NDArray[np.uint8], kind: VecType) -> U64:
    return data.view(f"<u{kind.bits // 8}").T.astype(np.uint64)


def _sources(isa: Isa, jobs: Sequence[tuple[Instr, int]]) -> dict[str, str]:
    texts = [_function(isa, k, form, imm) for k, (form, imm) in enumerate(jobs)]
    head = f"#include <{isa.table.header}>\n#include <stdint.h>\n#include <string.h>\n"
    return {f"forms{k}.c": head + "".join(texts[k : k + _CHUNK]) for k in range(0, len(texts), _CHUNK)}


def _function(isa: Isa, k: int, instr: Instr, imm: int) -> str:
    ctype, size = isa.table.ctype, sum(o.type.total_bits // 8 for o in instr.operands)
    signature = f"void t_{k}(const uint8_t *bs_in, uint8_t *bs_out, size_t bs_count)"
    body, at = [], 0
    for o in instr.operands:
        kind = ctype.get(str(o.type), "")
        load = f"const uint8_t *{o.name} = bs_in + {at};" if o.memory else _load(kind, o.name, at)
        body.append(load)
        at += o.type.total_bits // 8
    text = instr.render([o.name for o in instr.operands], imm, "bs_out")
    kind = ctype[str(instr.out)]
    body.append(f"{text};" if instr.store else f"{kind} bs_y = {text}; memcpy(bs_out, &bs_y, sizeof bs_y);")
    step = f"bs_in += {size}, bs_out += {instr.out.total_bits // 8}"
    loop = f"for (size_t bs_r = 0; bs_r < bs_count; bs_r++, {step}) {{ {' '.join(body)} }}"
    return f"{signature};\n{signature} {{ {loop} }}\n"


def _load(kind: str, name: str, at: int) -> str:
    return f"{kind} {name}; memcpy(&{name}, bs_in + {at}, sizeof {name});"
