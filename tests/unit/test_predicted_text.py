"""Predicted loads, stores and operations equal the emitted C text's: no compiler is asked.

`schedule/predicted.py` mirrors the loops that `emit/` writes. Here the instructions of each part of a kernel, as they
are predicted, are compared with the calls in the C of that part, which the comments of the C tell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from support.case_selection import quick
from support.solved_kernels import REPRESENTATIVE, name, proved_entry, spec_of

from bitsynth.isa.load import load
from bitsynth.isa.step import Step
from bitsynth.kernel.describe import step_title
from bitsynth.kernel.in_order import pipelining
from bitsynth.matmul import MatmulKernel
from bitsynth.schedule import predicted

CALL = re.compile(r"(\w+)\(")


def compiled(config):
    """A kernel, its instruction set, and the lines of its microkernel in C."""
    isa, _, act_bits, w_bits = config
    text = MatmulKernel(proved_entry(*config), spec_of(isa, act_bits, w_bits)).source
    return proved_entry(*config).entry.kernel, load(isa), text.splitlines()


def depth(line):
    """How far a line is indented."""
    return len(line) - len(line.lstrip())


def section(lines, title):
    """The lines behind each comment that has a title, up to the next comment there or the block's end."""
    out = []
    for at, line in enumerate(lines):
        if not line.lstrip().startswith("/*") or title not in line.lower():
            continue
        ends = re.compile(rf" {{0,{depth(line) - 1}}}\S| {{{depth(line)}}}(/\*|while)")
        rest = lines[at + 1 :]
        out.append(rest[: next((k for k, other in enumerate(rest) if ends.match(other)), len(rest))])
    return out


def calls(isa, ops, lines):
    """How often the C calls what each of `ops` is there."""
    found = Counter(CALL.findall("\n".join(lines)))
    return {c_name(isa, op): found[c_name(isa, op)] for op in ops}


def c_name(isa, op):
    """The function or the macro that an instruction form is in C."""
    text = isa[op].text
    return text.partition("(")[0] if re.fullmatch(r"\w+\([^()]*\)", text) else op.replace(".", "_")


@pytest.fixture
def tile_of(monkeypatch):
    """Makes the predicted tile of a kernel, which yields names of forms and kinds in the place of what is issued."""
    monkeypatch.setattr(predicted, "issue", lambda isa, cpu, step, becomes, address="": step.op)
    monkeypatch.setattr(predicted, "arithmetic", lambda isa, cpu, op, names, dst: op)
    monkeypatch.setattr(predicted, "of_kind", lambda rules, kind, reads=(), writes=(): kind)
    monkeypatch.setattr(predicted._Tile, "rules", None)
    return lambda isa, kernel: predicted._Tile(isa, kernel, "any")


def counted(isa, ops):
    """How often each function or macro is predicted."""
    out = Counter[str]()
    for op in ops:
        if op in isa.instrs:
            out[c_name(isa, op)] += 1
    return dict(out)


CASES = quick(REPRESENTATIVE[::3], of=REPRESENTATIVE)


@pytest.mark.parametrize("config", CASES, ids=name)
def test_steps_have_the_predicted_instructions(config, tile_of):
    kernel, isa, lines = compiled(config)
    tile = tile_of(isa, kernel)
    for loop, text in zip(kernel.passes, section(lines, step_title(kernel).lower()), strict=True):
        *_, step = tile._plain_steps(loop)(2)
        wanted = counted(isa, step)
        assert sum(wanted.values()) > kernel.groups
        ops = {op for op in step if op in isa.instrs}
        assert calls(isa, ops, text) == wanted
        last = max(k for k, line in enumerate(text) if any(calls(isa, ops, [line]).values()))
        assert calls(isa, ops, text[:last] + text[last + 1 :]) != wanted


@pytest.mark.parametrize("config", CASES, ids=name)
def test_outer_loops_have_the_predicted_operations(config, tile_of):
    """Loads and stores of spilled accumulators, which compilers write, are predicted beside them."""
    kernel, isa, lines = compiled(config)
    tile = tile_of(isa, kernel)
    for level in range(1, max(len(loop.loops) for loop in kernel.passes)):
        nests = [loop for loop in kernel.passes if len(loop.loops) > level]
        for loop, text in zip(nests, section(lines, f"loop {level}: after"), strict=True):
            ops = list(tile._outer(loop, level))
            assert calls(isa, {op for op in ops if op in isa.instrs}, text) == counted(isa, ops)


@pytest.mark.parametrize("config", CASES, ids=name)
def test_flushes_have_the_predicted_instructions(config, tile_of):
    kernel, isa, lines = compiled(config)
    tile, memory = tile_of(isa, kernel), kernel.memory
    moves = {"load": memory.load_tile, "store": memory.store_tile, "broadcast": memory.broadcast_tile}
    flushes = [loop for loop in kernel.passes if not loop.carries]
    for loop, text in zip(flushes, section(lines, "flush: every"), strict=True):
        ops = [moves.get(op, op) for op in tile._flush(loop, False)]
        wanted = counted(isa, ops)
        assert wanted[c_name(isa, memory.store_tile)] == kernel.rows * kernel.tile_registers(isa.table.vector_bits)
        assert calls(isa, {op for op in ops if op in isa.instrs}, text) == wanted


def pipelined_name(isa, step):
    """The call that an instruction of a pipelined loop is in C: halves of registers have their own."""
    if step.dst.part.is_word:
        return "WORD"
    if step.dst.part.in_general and not step.args:
        return "memcpy"
    return c_name(isa, step.op)


@pytest.mark.parametrize("config", [config for config in REPRESENTATIVE if config[0] == "neon"], ids=name)
def test_pipelined_loops_have_the_predicted_instructions(config, monkeypatch):
    """Before the loop, in it, behind it, and steps that are left over."""
    found = MatmulKernel(proved_entry(*config), spec_of(config[0], *config[2:])).with_order("a53")
    kernel, isa, lines = found.entry.kernel, load("neon"), found.source.splitlines()
    monkeypatch.setattr(predicted, "issue", lambda isa, cpu, step, becomes, address="": step)
    tile = predicted._Tile(isa, kernel, "a53")
    for loop, text in zip(kernel.passes, section(lines, step_title(kernel).lower()), strict=True):
        peeled = bool(loop.step.first) and pipelining.peels(kernel)
        copies = pipelining.pipeline_loop(kernel, loop).copies
        blocks: dict[int, Sequence[Any]] = {
            id(block): block for block in list(tile._pipeline_steps(loop)(peeled + 3 * copies + 1))[peeled:]
        }
        steps = [step for block in blocks.values() for step in block if isinstance(step, Step)]
        wanted = Counter(pipelined_name(isa, step) for step in steps)
        written = Counter(CALL.findall("\n".join(text)))
        assert {call: written[call] for call in wanted} == wanted
