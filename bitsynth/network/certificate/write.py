"""Writes the certificate of a network: the claims of each step, the places of buffers, and the digests of all files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
from msgspec import UNSET

from bitsynth import __version__
from bitsynth.files import MARK, as_bytes, mark
from bitsynth.graph.ir import digest as graph_digest
from bitsynth.graph.types import Integers, numpy_type
from bitsynth.layers.epilogues.claimed import ClaimedConversion
from bitsynth.layers.glue import Lookup, PairLookup, SumLookup
from bitsynth.network.arena import ArenaPlan, uses
from bitsynth.network.certificate import checker
from bitsynth.network.certificate.chains import Unsupported
from bitsynth.network.certificate.claims import glue_claims, layer_claims, operand_of
from bitsynth.network.certificate.edges import edge_record
from bitsynth.network.certificate.elements import (
    claim_moves,
    conversion_claims,
    formula_claims,
    number_claims,
    record_regrid,
)
from bitsynth.network.certificate.kernels import records_of
from bitsynth.network.certificate.rebuild import step_source
from bitsynth.network.certificate.recipe import recipe
from bitsynth.network.certificate.records import (
    ArenaRecord,
    BufferRecord,
    CertificateRecord,
    EdgeRecord,
    JsonValue,
    StepClaim,
    StepRecord,
    to_dict,
)
from bitsynth.network.program import Buffer, GlueStep, LayerStep, NetworkProgram, NetworkStep, alias_root
from bitsynth.network.reading import Reading

FORMAT = checker.FORMAT
ENDS = ".certificate.json"
"""The end of a certificate's file name, after the name of its library."""


def certificate(
    program: NetworkProgram, plan: ArenaPlan, files: Mapping[str, str | bytes], reading: Reading
) -> dict[str, JsonValue]:
    """Return the certificate of a program with the library `files`, as JSON.

    It claims what `checker` can check by itself: of each step with sums or tables that C's formula is the network's own
    chain on the whole range, of the plan that buffers do not meet, of files that they are these. Of other steps it says
    why nothing is claimed.
    """
    given = program.graph.inputs
    used = uses(program)
    edges = {b.edge.name: edge_record(b.edge, b.edge.name in given) for b in program.buffers.values()}
    buffers = {name: _buffer(program, plan, used, b) for name, b in program.buffers.items()}
    exact = program.graph.reference == "exact"
    steps = []
    for step in program.steps:  # in order: a step may set the range of an edge that a later one reads
        record = drop_undecided_claims(_settle_step(program, step, edges), buffers, edges, exact)
        steps.append(msgspec.structs.replace(record, c=step_source(program, step, record.claims)))
    whole = CertificateRecord(
        about=MARK,
        format=FORMAT,
        network=program.graph.name,
        reference=program.graph.reference,
        graph=graph_digest(program.graph),
        reading=reading,
        isa=program.isa,
        cpu=program.cpu,
        threads=program.threads,
        version=__version__,
        inputs=list(program.inputs),
        outputs=list(program.outputs),
        arena=ArenaRecord(bytes=plan.bytes, bound=plan.bound),
        edges=edges,
        buffers=buffers,
        steps=steps,
        kernels=list(dict.fromkeys(kernel for step in program.steps for kernel in records_of(step))),
        quantizer=program.graph.quantizer or UNSET,
        files={name: hashlib.sha256(as_bytes(content)).hexdigest() for name, content in sorted(files.items())},
    )
    fields = to_dict(whole)
    return {**fields, "digest": digest(fields)}


def digest(certificate: Mapping[str, JsonValue]) -> str:
    """Return the digest of everything in a certificate except its digest."""
    text = json.dumps({**certificate, "digest": ""}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def certificate_files(
    name: str,
    program: NetworkProgram,
    plan: ArenaPlan,
    files: Mapping[str, str | bytes],
    reading: Reading,
) -> dict[str, str]:
    """Return the certificate of the library `name`, and the program that checks it, by file name."""
    script = mark({f"{name}_check.py": Path(checker.__file__).read_text("utf-8")})
    fields = certificate(program, plan, {**files, **script}, reading)
    return {**script, f"{name}{ENDS}": as_json(fields)}


def as_json(fields: Mapping[str, JsonValue]) -> str:
    """Return JSON with our mark, so that the file may be replaced; each step and buffer is on a line."""
    return "{" + ",\n".join(f"{json.dumps(name)}: {_lines(value)}" for name, value in fields.items()) + "}\n"


def _lines(value: JsonValue) -> str:
    if isinstance(value, dict):
        return "{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[\n" + ",\n".join(f" {json.dumps(v)}" for v in value) + "]"
    return json.dumps(value)


def _settle_step(program: NetworkProgram, step: NetworkStep, edges: dict[str, EdgeRecord]) -> StepRecord:
    """Return the record of a step, and set the ranges of real numbers among `edges` that its claim tells.

    Nothing is claimed of a step that reads or gives real numbers whose range no claim tells.
    """
    ops = {node.name: node.op for node in program.nodes_of(step)}
    record = StepRecord(
        kind=step.kind,
        nodes=[[name, ops[name]] for name in step.nodes],
        kernels=[kernel.name for kernel in records_of(step)],
        inputs=list(step.inputs),
        outputs=list(step.outputs),
    )
    try:
        claim = _claims(program, step)
    except Unsupported as why:
        return msgspec.structs.replace(record, unclaimed=str(why))
    if claim.reach:
        low, high = claim.reach
        for name, buffer in program.buffers.items():
            if alias_root(program.buffers, name) in step.outputs:
                edge = buffer.edge.name
                edges[edge] = msgspec.structs.replace(edges[edge], low=low, high=high)
    claimed = msgspec.structs.replace(
        record, constants=claim.constants, chain=claim.chain, claims=claim.claims, sums=claim.sums
    )
    names = [program.buffers[name].edge.name for name in (*step.inputs, *step.outputs)]
    if any(edges[name].low is UNSET for name in names):
        return _drop_claims(claimed, "real numbers of a step that is tested, not proved")
    return claimed


def _drop_claims(step: StepRecord, why: str) -> StepRecord:
    return msgspec.structs.replace(step, claims=[], unclaimed=why)


def drop_undecided_claims(
    step: StepRecord, buffers: Mapping[str, BufferRecord], edges: Mapping[str, EdgeRecord], exact: bool = True
) -> StepRecord:
    """Return the step, without claims if the checker could not prove them.

    That is so where numbers are so near to a tie that it cannot tell their code, where ranges of results differ along
    other axes than channels, and where arrays have a form that it does not take.
    """
    if not step.claims or isinstance(step.claims[0], ClaimedConversion):
        return step
    assert isinstance(step.chain, list)
    names = [*step.inputs, *step.outputs]
    used, given = [to_dict(buffers[name]) for name in names], [to_dict(edges[buffers[name].edge]) for name in names]
    has_curves = not {op.op for op in step.chain}.isdisjoint(checker.CURVES)
    results = [edge for edge in given[len(step.inputs) :] if "scale" in edge]
    is_along = any(not np.array_equal(checker.ends_of(e), checker.ends_of(e, inner=True)) for e in results)
    look = checker.prove if has_curves or is_along else checker.make_task
    try:
        look(to_dict(step), used, given, exact)
    except AssertionError as why:
        return _drop_claims(step, f"proved where it is compiled, undecided by the checker: {why}")
    return step


def _claims(program: NetworkProgram, step: NetworkStep) -> StepClaim:
    if isinstance(step, LayerStep):
        return layer_claims(program, step)
    if isinstance(step, GlueStep):
        has_table = isinstance(step.glue, Lookup | PairLookup | SumLookup)
        return glue_claims(program, step) if has_table else claim_moves(program, step)
    if step.formula is not None:
        return formula_claims(program, step, step.formula)
    if _gives_numbers(program, step):
        return number_claims(program, step)
    if _reads_numbers(program, step):
        return conversion_claims(program, step)
    return claim_moves(program, step)


def _gives_numbers(program: NetworkProgram, step: NetworkStep) -> bool:
    """Return whether a step computes real numbers, or hands integers to the caller as real numbers."""
    written = program.buffers[step.outputs[0]]
    if isinstance(written.edge.type, Integers):
        return written.role == "output" and (written.edge.is_float or bool(written.edge.type.zero.any()))
    return bool(step.nodes)


def _reads_numbers(program: NetworkProgram, step: NetworkStep) -> bool:
    """Return whether a step turns the caller's numbers into the integers that they stand for."""
    given = [program.buffers[name] for name in step.inputs]
    is_input = [b.role == "input" and b.edge.is_float and isinstance(b.edge.type, Integers) for b in given]
    return not step.nodes and is_input == [True]


def _buffer(program: NetworkProgram, plan: ArenaPlan, used: Mapping[str, list[int]], buffer: Buffer) -> BufferRecord:
    """Return a buffer's place, its live range and the range of its elements."""
    form, root = buffer.format, alias_root(program.buffers, buffer.name)
    return BufferRecord(
        edge=buffer.edge.name,
        role=buffer.role,
        alias="" if root == buffer.name else root,
        layout=form.layout,
        type=form.dtype,
        operand=operand_of(buffer),
        codes=recipe(form.operand),
        bits=form.bits,
        bytes=program.buffers[root].bytes,
        holds=_holds(buffer),
        life=_lives(program, used, root),
        through=(record_regrid(program, buffer) if buffer.alias else None) or UNSET,
        offset=plan.offsets.get(root, UNSET),
    )


def _holds(buffer: Buffer) -> list[int]:
    """Return the least and greatest integer of a buffer's elements; nothing for real numbers."""
    form = buffer.format
    if form.operand:
        return [form.operand.value(0), form.operand.value(form.operand.codes[-1])]
    if isinstance(buffer.edge.type, Integers) and numpy_type(form.dtype).kind in "iu" and buffer.role == "arena":
        info = np.iinfo(form.dtype)
        return [max(int(info.min), -(1 << 63)), min(int(info.max), (1 << 63) - 1)]
    return [-(1 << 63), (1 << 63) - 1]


def _lives(program: NetworkProgram, used: Mapping[str, list[int]], root: str) -> list[int]:
    """Return the first and the last step that use a buffer's memory."""
    places = used.get(root, [])
    if root in program.inputs:
        return [0, max(places, default=0)]
    return [places[0], places[-1]] if places else []
