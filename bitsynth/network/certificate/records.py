"""The records of a certificate: fields in the order of its JSON, which `write` makes and `rebuild` reads.

The checker imports numpy alone, so it reads the same JSON as dictionaries; `to_dict` converts records to them. Fields
that are unset are left out. A record has no fields other than these.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from bitsynth.errors import SpecError
from bitsynth.graph.quantizer_claims import QuantizerClaims
from bitsynth.layers.epilogues.claimed import Claim, ClaimedResult
from bitsynth.network.certificate import checker
from bitsynth.network.certificate.arrays import EncodedArray, EncodedNumbers, encode_array
from bitsynth.network.certificate.kernels import KernelRecord
from bitsynth.network.reading import Reading
from bitsynth.spec.layout import Layout

RecordT = TypeVar("RecordT")
JsonValue = Any
"""JSON of many forms, as a recipe (`recipe.py`)."""


class CertificatePart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of a certificate."""


class EdgeRecord(CertificatePart, frozen=True, kw_only=True):
    """An edge's type: integers with range, scale and zero point; or real numbers, with a range if one is proved."""

    shape: list[int]
    type: str
    low: EncodedNumbers | UnsetType = UNSET
    high: EncodedNumbers | UnsetType = UNSET
    scale: EncodedNumbers | UnsetType = UNSET
    zero: EncodedNumbers | UnsetType = UNSET
    step: int | UnsetType = UNSET


class ChainOperation(CertificatePart, frozen=True, kw_only=True):
    """An operation of a chain, on the values `of` these names."""

    op: str
    of: list[str]
    result: str = msgspec.field(name="is")
    bytes: int | UnsetType = UNSET


class LayerFacts(CertificatePart, frozen=True, kw_only=True):
    """Facts that the layer's record gives: weights, bias, window, and scale and offset of input codes."""

    weights: EncodedArray
    padded: bool
    reads: list[int]
    bias: EncodedArray
    geometry: dict[str, int | list[int]]


class ClaimedSums:
    """What the claims of a step are about: sums, or in their place the elements of an edge or the caller's floats.

    JSON does not say which of the subclasses it is: `_kind_of_sums` finds it by the fields.
    """

    __slots__ = ()


class LayerSums(LayerFacts, ClaimedSums, frozen=True, kw_only=True):
    """The sums of a layer: their scale relative to the scale of its input, and their range."""

    scale: EncodedNumbers
    low: EncodedArray
    high: EncodedArray


class MatrixFacts(CertificatePart, frozen=True, kw_only=True):
    """Facts of products of two edges: [count, rows, depth, columns], bias, scale and offset of both codes."""

    matrices: list[int]
    reads: list[list[int]]
    bias: EncodedArray


class MatrixSums(MatrixFacts, ClaimedSums, frozen=True, kw_only=True):
    """The sums of products of the elements of two edges, and their range, one for all."""

    low: EncodedArray
    high: EncodedArray


class WindowSums(CertificatePart, ClaimedSums, frozen=True, kw_only=True):
    """The sums of the elements of a window, `each` channel by itself."""

    weights: EncodedArray
    each: bool
    geometry: dict[str, int | list[int]]
    padded: bool
    reads: list[int]
    bias: int
    low: EncodedArray
    high: EncodedArray


class ElementSums(CertificatePart, ClaimedSums, frozen=True, kw_only=True):
    """Instead of sums the elements of an edge, whose range is there; `rows` if channels change places."""

    bias: int = 0
    rows: list[int] | UnsetType = UNSET


class FloatPlaces(CertificatePart, ClaimedSums, frozen=True, kw_only=True):
    """Instead of sums the caller's floats, by their places in the order of a float type."""

    places: str
    bias: int
    low: int
    high: int


class StepClaim(CertificatePart, frozen=True, kw_only=True):
    """The claims of a step: that C's formulas of sums are the network's chain.

    `reach` has the least and the greatest real result; it is empty unless the claim is `numbers`.
    """

    constants: dict[str, EncodedArray]
    chain: list[ChainOperation]
    claims: list[Claim]
    sums: ClaimedSums
    reach: tuple[EncodedArray, ...] = ()


class RegridRecord(CertificatePart, frozen=True, kw_only=True):
    """The nodes between the edge of a shared memory and a buffer that reads its bytes on another grid."""

    nodes: list[list[str]]
    unclaimed: str = ""
    claims: list[Claim] = []
    constants: dict[str, EncodedArray] | UnsetType = UNSET
    chain: list[ChainOperation] | UnsetType = UNSET
    sums: ElementSums | UnsetType = UNSET


class BufferRecord(CertificatePart, frozen=True, kw_only=True):
    """A buffer: its edge, its format, the integers that it holds, and when and where it is in memory."""

    edge: str
    role: str
    alias: str
    layout: Layout
    type: str
    operand: list[int]
    codes: JsonValue
    bits: int
    bytes: int
    holds: list[int]
    life: list[int]
    through: RegridRecord | UnsetType = UNSET
    offset: int | UnsetType = UNSET


class StepSource:
    """What the C of a step is rendered from; the subclass depends on the kind of the step."""

    __slots__ = ()


class LayerSource(CertificatePart, StepSource, frozen=True, kw_only=True):
    """The recipes from which the C of a layer is rendered; without a claim also its `LayerFacts` or `MatrixFacts`.

    `places` is where the factors of a product of two edges lie.
    """

    weights: EncodedArray | UnsetType = UNSET
    padded: bool | UnsetType = UNSET
    matrices: list[int] | UnsetType = UNSET
    reads: list[int | list[int]] | UnsetType = UNSET
    bias: EncodedArray | UnsetType = UNSET
    geometry: dict[str, int | list[int]] | UnsetType = UNSET
    spec: JsonValue
    schedule: JsonValue
    cpu: str
    epilogue: JsonValue
    image: list[int]
    places: JsonValue | UnsetType = UNSET


class GlueSource(CertificatePart, StepSource, frozen=True, kw_only=True):
    """The recipe from which the C of glue is rendered, and batch, height and width."""

    glue: JsonValue
    image: list[int]


class ConstantRecord(CertificatePart, frozen=True, kw_only=True):
    """A constant of plain C, whose bytes are in the file of weights."""

    type: str
    shape: list[int]
    digest: str


class PlainSource(CertificatePart, StepSource, frozen=True, kw_only=True):
    """The text of plain C; of C that follows from its buffers no field, or the order of the caller's floats alone."""

    order: Layout | UnsetType = UNSET
    body: str | UnsetType = UNSET
    constants: list[ConstantRecord] | UnsetType = UNSET
    scratch_bytes: int | UnsetType = UNSET
    headers: list[str] | UnsetType = UNSET


class StepRecord(CertificatePart, frozen=True, kw_only=True):
    """A step: its claim, or the reason why it has none, and the source `c` of its C."""

    kind: str
    nodes: list[list[str]]
    kernels: list[str]
    inputs: list[str]
    outputs: list[str]
    unclaimed: str = ""
    constants: dict[str, EncodedArray] | UnsetType = UNSET
    chain: list[ChainOperation] | UnsetType = UNSET
    claims: list[Claim] = []
    sums: ClaimedSums | UnsetType = UNSET
    c: StepSource = PlainSource()


class ArenaRecord(CertificatePart, frozen=True, kw_only=True):
    """The bytes of the arena, and the least that any plan takes."""

    bytes: int
    bound: int


class CertificateRecord(CertificatePart, frozen=True, kw_only=True):
    """The certificate of a network; `digest` is the digest of everything else.

    `quantizer` repeats what the file says of its error against a float network: claims that the checker cannot check.
    """

    about: str
    format: int
    network: str
    reference: str
    graph: str
    reading: Reading
    isa: str
    cpu: str
    threads: int
    version: str
    inputs: list[str]
    outputs: list[str]
    arena: ArenaRecord
    edges: dict[str, EdgeRecord]
    buffers: dict[str, BufferRecord]
    steps: list[StepRecord]
    kernels: list[KernelRecord]
    quantizer: QuantizerClaims | UnsetType = UNSET
    files: dict[str, str]
    digest: str = ""

    @property
    def proved(self) -> list[StepRecord]:
        """The steps with claims."""
        return [step for step in self.steps if step.claims]

    @property
    def unproved_aliases(self) -> list[tuple[str, str]]:
        """The aliases whose integers are on another grid than their memory's, unproved, with the reason for each."""
        regrids = [(name, buffer.through) for name, buffer in self.buffers.items() if buffer.alias]
        return [(name, regrid.unclaimed) for name, regrid in regrids if regrid and regrid.unclaimed]


def to_dict(record: CertificatePart | ClaimedResult | ClaimedSums | EncodedArray) -> dict[str, JsonValue]:
    """Return a record as the dictionary that its JSON is."""
    fields: dict[str, JsonValue] = msgspec.to_builtins(record, enc_hook=_encode)
    return fields


def _encode(numbers: object) -> EncodedNumbers:
    """Return the array of a claim as JSON; an array without axes is a number."""
    assert isinstance(numbers, np.ndarray)
    return encode_array(numbers) if numbers.ndim else int(numbers)


def record_of(fields: JsonValue, kind: type[RecordT]) -> RecordT:
    """Return the record that JSON is; SpecError for another kind of record, or for more fields than it has."""
    try:
        return msgspec.convert(fields, kind, dec_hook=_decode)
    except msgspec.ValidationError as error:
        raise SpecError(f"{error}: this is no {kind.__name__} of a certificate") from None


_SUBCLASSES: dict[type, tuple[dict[str, type[CertificatePart]], type[CertificatePart]]] = {
    ClaimedSums: (
        {"matrices": MatrixSums, "each": WindowSums, "weights": LayerSums, "places": FloatPlaces},
        ElementSums,
    ),
    StepSource: ({"spec": LayerSource, "glue": GlueSource}, PlainSource),
}
"""Subclasses of records whose JSON does not name them: by a field that one alone has, and the one without such."""


def _decode(kind: type, fields: JsonValue) -> object:
    """Return the array of a claim, or the record of the subclass of `kind` that `fields` are."""
    if kind not in _SUBCLASSES:
        return np.asarray(checker.array(fields))
    by_field, other = _SUBCLASSES[kind]
    return msgspec.convert(fields, next((part for name, part in by_field.items() if name in fields), other))
