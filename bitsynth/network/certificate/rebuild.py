"""Renders the C library that a certificate describes: the files of its folder must be equal to it, byte for byte.

A certificate has the source of each step's C. For a layer these are specification, schedule and epilogue, and the
weights in its claim; for glue its arguments; for plain C its text. From these sources and the proved kernels of the
store `library_of` renders the texts that `bitsynth compile` wrote. So no file, weight, place in the arena or kernel can
be another than the certificate says. `library_of` also compares the claims of a step with the source of its C.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from bitsynth.emit import glue_abi, runtime_abi
from bitsynth.errors import SpecError
from bitsynth.files import as_bytes, mark
from bitsynth.graph.ir import Graph
from bitsynth.graph.types import Tensor, numpy_type
from bitsynth.layers.epilogues.claimed import Claim, ClaimedConversion, ClaimedResult, ClaimedThresholds
from bitsynth.layers.glue import DepthToSpace, Lookup, MaxPool2d, PairLookup, Resize, SumLookup
from bitsynth.layers.packed import PackedLayer
from bitsynth.layers.planning import LayerPlan
from bitsynth.network.arena import ArenaPlan, Lifetime, align_up
from bitsynth.network.certificate import checker
from bitsynth.network.certificate.arrays import decode_array
from bitsynth.network.certificate.claims import layer_facts, layer_formulas, operand_of, table_formula
from bitsynth.network.certificate.edges import edge_of, edge_record
from bitsynth.network.certificate.kernels import records_of
from bitsynth.network.certificate.recipe import rebuild, recipe
from bitsynth.network.certificate.records import (
    BufferRecord,
    CertificateRecord,
    ClaimedSums,
    ConstantRecord,
    EdgeRecord,
    ElementSums,
    GlueSource,
    JsonValue,
    LayerSource,
    LayerSums,
    MatrixSums,
    PlainSource,
    StepRecord,
    StepSource,
    WindowSums,
    to_dict,
)
from bitsynth.network.formulas import Chain, StepFunction
from bitsynth.network.fusion.inputs import input_step
from bitsynth.network.library import NetworkText
from bitsynth.network.library.weights import Weights
from bitsynth.network.plain import make_conversion
from bitsynth.network.program import (
    Buffer,
    Format,
    GlueStep,
    LayerStep,
    Matrices,
    NetworkProgram,
    NetworkStep,
    PlainStep,
)
from bitsynth.spec.layout import Layout

_MOVES = (MaxPool2d, Resize, DepthToSpace)
"""Glue whose results are elements that it reads."""


def step_source(program: NetworkProgram, step: NetworkStep, claims: list[Claim]) -> StepSource:
    """Return what the C of a step is rendered from, besides its `claims`, which have a layer's weights.

    Of a conversion this is nothing: its C follows from its buffers. Of codes of the caller's floats it is the order in
    which these lie.
    """
    if isinstance(step, LayerStep):
        plan = step.layer.plan
        source = LayerSource(
            spec=recipe(plan.spec),
            schedule=recipe(plan.schedule),
            cpu=plan.cpu,
            epilogue=recipe(step.layer.epilogue),
            image=list(step.image),
            places=UNSET if step.matrices is None else recipe(step.matrices),
        )
        return source if claims else msgspec.structs.replace(source, **msgspec.structs.asdict(layer_facts(step)))
    if isinstance(step, GlueStep):
        return GlueSource(glue=recipe(step.glue), image=list(step.image))
    if is_conversion(program.graph, step, program.buffers):
        return PlainSource()
    if isinstance(step.formula, StepFunction) and claims:
        to = program.buffers[step.outputs[0]]
        made_of = replace(to, edge=edge_of(to.edge.name, edge_record(to.edge, False)))
        for order in (Layout.PLAIN, Layout.NHWC):
            if _same_text(step, input_step(_step_function(claims[0], made_of), made_of.edge, order)):
                return PlainSource(order=order)
    constants = [
        ConstantRecord(type=x.dtype.name, shape=list(x.shape), digest=_digest(np.ascontiguousarray(x).tobytes()))
        for x in step.constants
    ]
    return PlainSource(
        body=step.body, constants=constants, scratch_bytes=step.scratch_bytes, headers=list(step.headers)
    )


def is_conversion(graph: Graph, step: PlainStep, buffers: Mapping[str, Buffer]) -> bool:
    """Return whether the C of a step follows from its two buffers alone, as a certificate describes them."""
    if step.nodes or len(step.inputs) != 1:
        return False
    edge = buffers[step.inputs[0]].edge
    described = edge_of(edge.name, edge_record(edge, False))
    source, to = (replace(buffers[name], edge=described) for name in (*step.inputs, *step.outputs))
    return _same_text(step, make_conversion(graph, source, to))


def _same_text(one: PlainStep, other: PlainStep) -> bool:
    """Return whether two steps have the same C and constants."""
    same = [getattr(one, name) == getattr(other, name) for name in ("body", "scratch_bytes", "headers")]
    pairs = zip(one.constants, other.constants, strict=False)
    return all(same) and len(one.constants) == len(other.constants) and all(np.array_equal(a, b) for a, b in pairs)


def _step_function(claim: Claim, written: Buffer) -> StepFunction:
    """Return the step function from the caller's floats to codes whose thresholds a claim has."""
    operand, kind = written.format.operand, written.edge.integers
    if operand is None or not isinstance(claim, ClaimedThresholds):
        raise AssertionError("codes of floats are by thresholds")
    first, per_level = (kind.least - operand.offset) // operand.scale, max(1, kind.step // operand.scale)
    values, rising = claim.values, claim.rising.ravel() != 0
    thresholds = (values + rising[:, None])[:, first::per_level]
    low, high = (np.full(len(values), end) for end in checker.PLACES)
    none = np.zeros((*thresholds.shape, 2), np.int64)
    return StepFunction(
        Chain("", (), (), (), len(values) > 1), low, high, thresholds, rising, kind.least, kind.step, none
    )


@dataclass(frozen=True, eq=False)
class Library:
    """The library that a certificate describes.

    Attributes:
        text: Its C.
        files: The digests of its files by name, but for the self-test.
        plain: How many steps have plain C whose text is taken from the certificate: it follows from no claim.
    """

    text: NetworkText
    files: Mapping[str, str]
    plain: int


def library_of(given: CertificateRecord, name: str, files: Mapping[str, bytes]) -> Library:
    """Return the library called `name` that a certificate describes.

    Args:
        given: The certificate, which `checker.check` accepts.
        name: The library's name in C.
        files: The files of weights of its folder, by name: they alone have the constants of plain C; the certificate
            has the constants' digests.

    Raises:
        AssertionError: A claim is of another layer, glue or kernel than the step has.
        SpecError: It describes no library, or a kernel is not stored.
    """
    buffers = {name: _buffer(name, record, given.edges) for name, record in given.buffers.items()}
    inputs, outputs = tuple(given.inputs), tuple(given.outputs)
    read, written = (tuple(buffers[name].edge.name for name in names) for names in (inputs, outputs))
    edges = {b.edge.name: b.edge for b in buffers.values()}
    graph = Graph(given.network, given.reference, (), edges, {}, read, written)
    constants, steps, texts = _Constants(Weights.read(files, name)), list[NetworkStep](), 0
    for place, record in enumerate(given.steps):
        step = _step(record, graph, buffers, constants, given.isa)
        checker.require(step.kind == record.kind, f"step {place} is of another kind than it says")
        _require_claimed(f"step {place}", step, record, buffers)
        texts += isinstance(record.c, PlainSource) and record.c.body is not UNSET
        steps.append(step)
    program = NetworkProgram(graph, given.isa, given.threads, tuple(steps), buffers, inputs, outputs, given.cpu)
    called = list(dict.fromkeys(kernel for step in steps for kernel in records_of(step)))
    checker.require(called == given.kernels, "its kernels are not the kernels of its steps")
    has_weights_file = f"{name}_weights.bin" in files
    text = NetworkText(name, program, _plan(given), has_weights_file=has_weights_file, reading=given.reading)
    script = mark({f"{name}_check.py": Path(checker.__file__).read_text("utf-8")})
    contents: dict[str, str | bytes] = {**text.get_untested(), **text.binaries, **script}
    return Library(text, {file: _digest(as_bytes(content)) for file, content in contents.items()}, texts)


def require_files(library: Library, listed: Mapping[str, str]) -> None:
    """Raise AssertionError unless `listed` are the digests of all files of a library, and of its self-test."""
    name = f"{library.text.name}_selftest.c"
    for file in {**library.files, name: ""}:
        checker.require(file in listed, f"it says nothing of {file}")
    for file, digest in listed.items():
        checker.require(file == name or file in library.files, f"{file} is no file of this library")
        checker.require(file == name or library.files[file] == digest, f"{file} is not the C of what is claimed")


def _plan(given: CertificateRecord) -> ArenaPlan:
    """Return where a certificate says that buffers lie."""
    offsets = {name: b.offset for name, b in given.buffers.items() if b.offset is not UNSET and not b.alias}
    placed = {name: given.buffers[name] for name in offsets}
    lives = {name: Lifetime(b.life[0], b.life[1], align_up(b.bytes)) for name, b in placed.items()}
    return ArenaPlan(offsets, lives, given.arena.bytes)


def _buffer(name: str, record: BufferRecord, edges: Mapping[str, EdgeRecord]) -> Buffer:
    """Return the buffer that a certificate says this of; AssertionError if it contradicts itself."""
    operand = rebuild(record.codes)
    form = Format(record.type, operand, record.layout)
    edge = edge_of(record.edge, edges[record.edge])
    buffer = Buffer(name, edge, form, "arena" if record.alias else record.role, record.alias)
    what = f"{name} has other codes than it says"
    checker.require(operand_of(buffer) == record.operand, what)
    if operand:
        checker.require(record.holds == [operand.value(0), operand.value(operand.codes[-1])], what)
    checker.require(record.bits == form.bits, what)
    checker.require(record.alias or record.bytes == buffer.bytes, f"{name} has other bytes than its elements take")
    return buffer


class _Constants:
    """The constants of plain C, taken in the order of steps from the file with the constants of all steps."""

    def __init__(self, words: bytes) -> None:
        self.words, self.placed, self.known = words, Weights(), dict[str, bytes]()

    def place(self, raw: bytes) -> None:
        """Lay out the next constant of any step."""
        self.placed.place(np.frombuffer(raw, np.uint8))
        self.known[_digest(raw)] = raw

    def take(self, record: ConstantRecord) -> Tensor:
        """Return the next constant of plain C, whose type, shape and digest the certificate has."""
        kind, shape, digest = np.dtype(record.type), record.shape, record.digest
        size = kind.itemsize * math.prod(shape)
        raw = self.known.get(digest, self.words[self.placed.bytes : self.placed.bytes + size])
        checker.require(len(raw) == size and _digest(raw) == digest, "a constant of plain C was changed")
        self.place(raw)
        return np.frombuffer(raw, kind).reshape(shape)


def _matrices(places: JsonValue) -> Matrices:
    """Return where the factors of a product of two edges lie; AssertionError if these are no sizes and strides."""
    matrices = rebuild(places)
    checker.require(isinstance(matrices, Matrices), "factors lie in no known places")
    assert isinstance(matrices, Matrices)
    sizes: list[object] = [matrices.outer, matrices.rows, matrices.columns, matrices.results]
    are_whole = all(isinstance(some, tuple) and all(type(n) is int and n >= 0 for n in some) for some in sizes)
    checker.require(are_whole, "factors lie in no known places")
    return matrices


def _step(
    record: StepRecord, graph: Graph, buffers: Mapping[str, Buffer], constants: _Constants, isa: str
) -> NetworkStep:
    """Return the step that a certificate has the recipe of; AssertionError if it claims a conversion and does more."""
    nodes = tuple(name for name, _ in record.nodes)
    names = nodes, tuple(record.inputs), tuple(record.outputs)
    source = record.c
    if isinstance(source, LayerSource):
        matrices = None if source.places is UNSET else _matrices(source.places)
        layer = _layer(source, record.sums or source, isa, matrices)
        _lay(constants, layer.constants.arrays, runtime_abi.ARRAYS)
        if matrices is not None:
            assert layer.column_packing is not None
            for array in (*matrices.all_starts(), *layer.column_packing.arrays.values()):
                constants.place(np.ascontiguousarray(array).tobytes())
        return LayerStep(*names, layer, _image(source.image), matrices)
    if isinstance(source, GlueSource):
        glue = rebuild(source.glue)
        _lay(constants, glue.constants.arrays, glue_abi.ARRAYS)
        return GlueStep(*names, glue, _image(source.image))
    assert isinstance(source, PlainSource)
    if source.body is UNSET:
        (given,), (to,) = names[1:]
        if source.order is not UNSET:
            checker.require(source.order in {Layout.PLAIN, Layout.NHWC}, "floats lie in no known order")
            text = input_step(_step_function(record.claims[0], buffers[to]), buffers[to].edge, source.order)
        else:
            text = make_conversion(graph, buffers[given], buffers[to])
        step = replace(text, nodes=nodes, inputs=(given,), outputs=(to,))
        for array in step.constants:
            constants.place(np.ascontiguousarray(array).tobytes())
        return step
    claims_conversion = any(isinstance(claim, ClaimedConversion) for claim in record.claims)
    checker.require(not claims_conversion, "a conversion has other text")
    if source.constants is UNSET or source.scratch_bytes is UNSET or source.headers is UNSET:
        raise SpecError("plain C lacks its constants, scratch memory or headers")
    arrays = tuple(constants.take(each) for each in source.constants)
    return PlainStep(*names, source.body, arrays, source.scratch_bytes, tuple(source.headers))


def _layer(own: LayerSource, sums: LayerSource | ClaimedSums, isa: str, matrices: Matrices | None) -> PackedLayer:
    """Return the layer of a recipe, with the bias of `sums` and, unless weights are an edge, the weights of `sums`."""
    spec = rebuild(own.spec)
    plan = LayerPlan(spec, rebuild(own.schedule), isa=isa, cpu=own.cpu)
    if matrices is not None:
        if not isinstance(sums, MatrixSums | LayerSource):
            raise SpecError("a product of two edges has sums of another kind of step")
        return PackedLayer(plan, None, rebuild(own.epilogue), decode_array(sums.bias))
    if not isinstance(sums, LayerSums | LayerSource):
        raise SpecError("a layer has sums of another kind of step")
    weight = decode_array(sums.weights)
    checker.require(weight.size == math.prod(spec.geometry.weight_shape), "weights are of another layer")
    codes = spec.wgt.encode(weight.reshape(spec.geometry.weight_shape), "weight")
    return PackedLayer(plan, codes, rebuild(own.epilogue), decode_array(sums.bias))


def _image(sizes: list[int]) -> tuple[int, int, int]:
    batch, height, width = map(checker.whole, sizes)
    return batch, height, width


def _lay(constants: _Constants, arrays: Mapping[str, Tensor], kinds: tuple[tuple[str, str], ...]) -> None:
    """Lay out the arrays of a layer or of glue in the order of the C."""
    for name, _ in kinds:
        if name in arrays:
            constants.place(np.ascontiguousarray(arrays[name]).tobytes())


def _require_claimed(what: str, step: NetworkStep, record: StepRecord, buffers: Mapping[str, Buffer]) -> None:
    """Raise AssertionError unless what a certificate says of a step is true of the C that it is rendered to."""
    names = [kernel.name for kernel in records_of(step)]
    checker.require(names == record.kernels, f"{what} has other kernels than it says")
    given, written = ([buffers[name] for name in names] for names in (step.inputs, step.outputs))
    formulas = [_formula_json(claim) for claim in record.claims]
    if isinstance(step, LayerStep):
        _require_layer(what, step, given, written)
        if formulas:
            checker.require(
                formulas == [_formula_json(claim) for claim in layer_formulas(step.layer)],
                f"{what} computes another formula than it claims",
            )
            facts, claimed = to_dict(layer_facts(step)), to_dict(record.sums) if record.sums else {}
            checker.require(facts.items() <= claimed.items(), f"{what} has other sums than it claims")
    elif isinstance(step, GlueStep):
        _require_glue(what, step, given, written)
        if formulas:
            _require_table(what, step, given[0], formulas, record.sums)


def _formula_json(claim: ClaimedResult) -> JsonValue:
    """Return the formula of a claim as JSON, without the value of the chain that it is."""
    return to_dict(msgspec.structs.replace(claim, result=UNSET))


def _require_layer(what: str, step: LayerStep, given: list[Buffer], written: list[Buffer]) -> None:
    """Raise AssertionError unless a layer reads and gives elements as its buffers have them."""
    layer, spec, numbers = step.layer, step.layer.plan.spec, step.layer.constants.numbers
    residual = layer.epilogue.residual if layer.epilogue else None
    is_of_matrices = step.matrices is not None
    read = [
        (spec.act, spec.in_type, spec.layout),
        *([(None, np.dtype(np.uint8), Layout.NHWC)] if is_of_matrices else []),
        *([(None, np.dtype(residual.type), Layout.NHWC)] if residual else []),
    ]
    checker.require(len(given) == len(read), f"{what} reads other tensors than its layer")
    for buffer, (operand, kind, layout) in zip(given, read, strict=True):
        form = buffer.format
        same = form.operand == operand if operand else True
        checker.require(same and numpy_type(form.dtype) == kind, f"{what} reads elements of other widths")
        checker.require(_layout(form) == layout, f"{what} reads elements that lie otherwise")
    results = [layer.out_type, *([layer.kept_type] if layer.kept_type else [])]
    kinds = [numpy_type(buffer.format.dtype) for buffer in written]
    checker.require(kinds == results, f"{what} gives elements of other widths")
    first = written[0].format
    checker.require(_layout(first) == spec.out_layout, f"{what} gives elements that lie otherwise")
    if spec.out_layout == Layout.PACKED:
        checker.require(
            first.operand and first.operand.bits == numbers["out_bits"], f"{what} gives codes of other bits"
        )
    if step.matrices is None:
        _require_elements(what, given[:1], [math.prod(step.image) * spec.in_elements])
    else:
        _require_matrices(what, step, step.matrices, given, written[0])
    after, others = math.prod(layer.tensor_shape(*step.image)), given[1 + is_of_matrices :]
    _require_elements(
        what, [*written[:1], *others, *written[1:]], [math.prod(layer.out_shape(*step.image)), after, after]
    )


def _require_matrices(what: str, step: LayerStep, matrices: Matrices, given: list[Buffer], result: Buffer) -> None:
    """Raise AssertionError unless factors and results of a product of two edges lie in their buffers, as codes."""
    spec, (count, high, rows) = step.layer.plan.spec, step.image
    operand = given[1].format.operand
    checker.require(operand is not None and operand.bits == spec.wgt.bits, f"{what} has a factor that is no codes")
    checker.require((matrices.count, 1) == (count, high), f"{what} has another number of products")
    depth, columns = spec.geometry.in_channels, spec.geometry.out_channels
    lies = [
        (matrices.rows, (*matrices.outer, rows, depth), given[0]),
        (matrices.columns, (*matrices.outer, columns, depth), given[1]),
    ]
    if matrices.results:
        lies.append(((*matrices.results, 1), (*matrices.outer, rows, columns), result))
    for strides, counts, buffer in lies:
        checker.require(len(strides) == len(counts), f"{what} has factors in no known places")
        last = sum((n - 1) * stride for n, stride in zip(counts, strides, strict=True))
        have = math.prod(buffer.format.elements(buffer.edge.shape))
        checker.require(last < have, f"{what} reads or writes behind {buffer.name}")


def _require_glue(what: str, step: GlueStep, given: list[Buffer], written: list[Buffer]) -> None:
    """Raise AssertionError unless glue reads and gives codes as its buffers have them."""
    glue = step.glue
    checker.require(len(given) == len(glue.inputs) and len(written) == 1, f"{what} reads other tensors than its glue")
    for buffer, kind in zip([*given, *written], [*glue.inputs, glue.output], strict=True):
        form = buffer.format
        same = form.operand == kind.operand and numpy_type(form.dtype) == kind.dtype
        checker.require(same and _layout(form) == kind.layout, f"{what} has elements of other widths")
    batch, height, width = step.image
    after = batch * math.prod(glue.out_size(height, width)) * glue.output.elements
    _require_elements(what, [*given, *written], [*(batch * height * width * x.elements for x in glue.inputs), after])


def _require_table(
    what: str, step: GlueStep, given: Buffer, formulas: list[JsonValue], sums: ClaimedSums | UnsetType
) -> None:
    """Raise AssertionError unless glue's claim is its table, or the identity for glue that only moves elements."""
    glue = step.glue
    if not isinstance(glue, Lookup | PairLookup | SumLookup):
        checker.require(isinstance(glue, _MOVES), f"{what} does more than it claims: it moves elements")
        return
    if not isinstance(glue, SumLookup):
        checker.require(isinstance(sums, ElementSums), f"{what} has no sums")
        reads = operand_of(given)
    elif isinstance(sums, WindowSums):
        window = {**glue.geometry.window(), "image": list(step.image)}
        checker.require(sums.geometry == window, f"{what} has another window than it claims")
        reads = sums.reads
    else:
        raise SpecError(f"{what} claims no sums of a window")
    checker.require(formulas == [_formula_json(table_formula(glue, reads))], f"{what} has another table")


def _require_elements(what: str, buffers: list[Buffer], counts: list[int]) -> None:
    """Raise AssertionError unless each buffer has its count of elements in memory, of words if it is packed."""
    for buffer, count in zip(buffers, counts, strict=False):
        have = math.prod(buffer.format.elements(buffer.edge.shape))
        checker.require(have == count, f"{what} has {count} elements where {buffer.name} has {have}")


def _layout(form: Format) -> Layout:
    """Return how a layer or glue calls a layout: elements in order, of one row of channels, lie channels last."""
    return Layout.NHWC if form.layout == Layout.PLAIN else form.layout


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
