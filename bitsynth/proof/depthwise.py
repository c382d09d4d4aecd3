"""How depthwise kernels are proved.

The checker runs the step and the flushes on linear forms, as `accumulation.py` explains:

    step     each accumulator lane gets the products of one channel, and no lane overflows between two flushes
    flush    each channel's accumulators are added to the sum of that channel, and to no other
    loop     so by induction over the steps a sum is its start plus all products

It uses neither the synthesizer nor Z3; Z3 discharges the instruction lemmas that this rests on.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from bitsynth.errors import Refuted, SpecError
from bitsynth.isa.domains.forms import Inexact, LinearForm, add_forms, as_form, total, variable
from bitsynth.isa.domains.linear import LinearDomain
from bitsynth.isa.domains.sums import product
from bitsynth.isa.load import Isa, load
from bitsynth.isa.tested import require_tested
from bitsynth.isa.trace import Register, Trace
from bitsynth.isa.types import VecType
from bitsynth.isa.value import Role, Value
from bitsynth.kernel.depthwise import DepthwiseFlush, DepthwiseProgram, check_shape
from bitsynth.proof.accumulation import any_value
from bitsynth.proof.obligations import Obligation, ObligationRecorder
from bitsynth.proof.proved import Lemmas, ProofRules

if TYPE_CHECKING:
    pass

Added = dict[tuple[Value, int], tuple[int, LinearForm]]
"""For each accumulator lane, the channel, and the sum of its products that a step adds."""


def step_sums(isa: Isa, program: DepthwiseProgram, trace: Trace | None = None) -> Added:
    """Return the channel and the products that a step adds to each lane; Refuted if it adds anything else."""
    trace = trace or Trace(isa, LinearDomain(1))
    products = _bind_inputs(trace, isa, program)
    kinds = {acc.name: VecType.parse(acc.type) for acc in program.accs}
    for name, kind in kinds.items():
        trace.bind(name, Register(kind, tuple(any_value((name, i), kind) for i in range(kind.lanes))))
    added: Added = {}
    try:
        for step in program.steps:
            trace.run(step)
        for acc in program.accs:
            for i, x in enumerate(_lanes(trace, acc.next, kinds[acc.name])):
                added[acc.name, i] = _channel(as_form(x), (acc.name, i), products)
    except Inexact as why:
        raise Refuted(f"the step cannot be shown exact: {why}") from None
    return added


def _bind_inputs(trace: Trace, isa: Isa, program: DepthwiseProgram) -> list[list[LinearForm]]:
    """Bind activations and weights, and return the products [channel][tap]."""
    word, unit = isa.word, program.unit
    act = [[variable(("act", j, ch), *program.act) for ch in range(unit)] for j in range(program.taps)]
    for j, lanes in enumerate(act):
        trace.bind(Value.of(Role.ROW, j), Register(word, tuple(lanes)))
    wgt = {place: variable(("wgt", *divmod(place, unit)), *program.wgt) for place in range(program.taps * unit)}
    for j, places in enumerate(program.weights):
        trace.bind(Value.of(Role.COLUMN, j), Register(word, tuple(wgt[p] for p in places)))
    return [[product(act[j][ch], wgt[j * unit + ch]) for j in range(program.taps)] for ch in range(unit)]


def _lanes(trace: Trace, name: Value, kind: VecType) -> tuple[Any, ...]:
    if name not in trace.registers:
        raise SpecError(f"{name} has no value")
    return trace.registers[name].view_as(trace.domain, kind).lanes


def _channel(form: LinearForm, key: tuple[Value, int], products: list[list[LinearForm]]) -> tuple[int, LinearForm]:
    """Return the channel whose products are added to the accumulator lane, and their sum; Inexact if there is none."""
    rest = dict(form.atoms)
    if rest.pop(key, None) != {1: 1} or form.const:
        raise Inexact(f"{key[0]} lane {key[1]} is not itself plus products")
    for channel, of_channel in enumerate(products):
        added = total(of_channel)
        if _same_atoms(rest, added):
            return channel, added
    raise Inexact(f"{key[0]} lane {key[1]} does not get the products of one channel")


def _same_atoms(atoms: Mapping[Hashable, Any], wanted: LinearForm) -> bool:
    """Return whether both forms have the same products, in any order of factors."""

    def plain(key: Hashable) -> Hashable:
        return frozenset(key[1:]) if isinstance(key, tuple) and key[0] == "product" else key

    return {plain(k): v for k, v in atoms.items()} == {plain(k): v for k, v in wanted.atoms.items()}


def check_flush(isa: Isa, program: DepthwiseProgram, flush: DepthwiseFlush, added: Added, trace: Trace) -> None:
    """Raise Refuted unless the flush adds each channel's full accumulators to the sum of that channel alone."""
    trace.bind_constants(flush.constants)
    held, tile = _bind_full(trace, program, added), isa.tile
    for r in range(len(flush.tile)):
        lanes = tuple(any_value(("c", r, i), tile) for i in range(tile.lanes))
        trace.bind(Value.of(Role.TILE, r), Register(tile, lanes))
    wanted = [[form for key, form in held.items() if added[key][0] == ch] for ch in range(program.unit)]
    try:
        for step in flush.steps:
            trace.run(step)
        for r, name in enumerate(flush.tile):
            for i, x in enumerate(_lanes(trace, name, tile)):
                whole = add_forms(any_value(("c", r, i), tile), total(wanted[flush.order[r * tile.lanes + i]]))
                if ((form := as_form(x)).const, form.atoms) != (0, whole.atoms):
                    raise Inexact(f"sum {r * tile.lanes + i} does not get the sums of its channel alone")
    except Inexact as why:
        raise Refuted(f"the flush cannot be shown exact after {program.flush_every} steps: {why}") from None


def _bind_full(trace: Trace, program: DepthwiseProgram, added: Added) -> dict[tuple[Value, int], LinearForm]:
    """Bind accumulators as full as they can be before a flush, and return their lanes; Refuted if one overflows."""
    held: dict[tuple[Value, int], LinearForm] = {}
    for acc in program.accs:
        kind = VecType.parse(acc.type)
        for i in range(kind.lanes):
            form = added[acc.name, i][1]
            least, most = (min(0, form.lo * program.flush_every), max(0, form.hi * program.flush_every))
            if not -(1 << kind.bits - 1) <= least <= most < 1 << kind.bits - 1:
                raise Refuted(f"{acc.name} may hold [{least}, {most}] after {program.flush_every} steps")
            held[acc.name, i] = variable(("sum", acc.name, i), least, most)
        trace.bind(acc.name, Register(kind, tuple(held[acc.name, i] for i in range(kind.lanes))))
    return held


def examine(program: DepthwiseProgram) -> tuple[tuple[str, ...], frozenset[Obligation]]:
    """Return the lemmas and the obligations that they rest on; Refuted or SpecError if a lemma does not hold."""
    isa, seen = load(program.isa), set[Obligation]()
    check_shape(isa, program)
    require_tested(isa[op] for op in program.forms)
    _check_memory(isa, program)

    def recorder() -> Trace:
        return ObligationRecorder(isa, LinearDomain(1), seen=seen)

    added = step_sums(isa, program, recorder())
    channels = [channel for channel, _ in added.values()]
    if set(channels) != set(range(program.unit)) or len(channels) != len(set(channels)):
        raise Refuted("the accumulators do not hold every channel once")
    for flush in program.flushes:
        check_flush(isa, program, flush, added, recorder())
    least, most = min(x.lo for _, x in added.values()), max(x.hi for _, x in added.values())
    orders = f", in {len(program.flushes)} orders of sums" if len(program.flushes) > 1 else ""
    lemmas = (
        "memory: registers are moved lane by lane",
        f"step: adds to each of {len(added)} lanes the {program.taps} products of its channel, in [{least}, {most}]",
        f"flush: every {program.flush_every} steps moves every lane to its channel's sum{orders}, none overflows",
        "loop: by induction a sum is its start plus the products of all steps, whatever the number of steps",
    )
    return lemmas, frozenset(seen)


def _check_memory(isa: Isa, program: DepthwiseProgram) -> None:
    """Raise Refuted unless loads and stores move the lanes of a register as they are."""
    memory = program.memory
    for op, kind in ((memory.load, isa.word), (memory.load_tile, isa.tile), (memory.store_tile, isa.tile)):
        instr, lanes = isa[op], [variable(k, 0, 0) for k in range(kind.lanes)]
        given = [o.type for o in instr.operands]
        if given != [kind] or instr.out != kind or instr.store != (op == memory.store_tile) or instr.imm:
            raise Refuted(f"{op} does not move a register of {kind}")
        if not (instr.is_load or instr.store) or instr(LinearDomain(1), [lanes]) != lanes:
            raise Refuted(f"{op} does not move lanes as they are")


class DepthwiseRules(ProofRules[DepthwiseProgram]):
    """The rules of depthwise kernels, which have no forms."""

    def examine(self, artifact: DepthwiseProgram, *, thorough: bool) -> Lemmas:
        """Return the lemmas of memory, step, flush and loop, and the obligations."""
        return examine(artifact)

    def derive(self, base: DepthwiseProgram, proved: Lemmas, artifact: DepthwiseProgram) -> Lemmas:
        """Raise SpecError: a depthwise kernel has no forms."""
        raise SpecError("a depthwise kernel has no forms: another one wants a proof of its own")
