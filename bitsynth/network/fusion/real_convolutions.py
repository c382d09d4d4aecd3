"""Convolutions of the caller's float32 numbers and the chain to codes after them, in one step of plain C.

Sums are computed in float32. Sums so near to a threshold that their error could decide are computed again, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from bitsynth.graph.ir import Graph, Names, Node
from bitsynth.graph.types import Edge, Reals, Shape, Tensor
from bitsynth.network.def_use import DefUse
from bitsynth.network.formulas import StepFunction
from bitsynth.network.formulas.step_functions import double_thresholds, find_real_step_function
from bitsynth.network.fusion.codes import code_formats, codes_of, find_chains, operand_of
from bitsynth.network.fusion.group import FusionGroup
from bitsynth.network.fusion.real_levels import LevelFormulas, fit_level_formulas
from bitsynth.network.fusion.real_sums import RealSums, find_real_sums
from bitsynth.network.plain.planes import ImagePlanes
from bitsynth.network.program import Buffer, Format, PlainStep, caller_format
from bitsynth.spec.layout import Layout

BLOCK = 16
"""Channels whose weights lie next to each other, as in the runtime."""
_CHANNELS_AT_ONCE = 32
"""Channels whose sums are computed together, at most."""


@dataclass(frozen=True)
class RealBody:
    """The body of a convolution's step: `in0` in planes, blocks of pixels, codes to `out0`.

    Its constants are k0 the weights, k1 where taps lie, k2 and k3 where lines and columns of an image do, k4 the
    thresholds, k5 lines of levels and codes, k6 margins.

    Args:
        given: (N, C, H, W) or (N, C, L).
        channels: Channels of the result.
        planes: The planes of one image.
        levels: Thresholds of a channel.
    """

    given: Shape
    channels: int
    planes: ImagePlanes
    levels: int

    @property
    def scratch_bytes(self) -> int:
        """Bytes of planes and margins."""
        return 4 * (self._plane_floats + self.room)

    @property
    def room(self) -> int:
        """Places for channels, padded with places that no channel uses."""
        return -(-self.channels // _CHANNELS_AT_ONCE) * _CHANNELS_AT_ONCE

    @property
    def _plane_floats(self) -> int:
        return -(-self.given[1] * self.planes.size // BLOCK) * BLOCK

    def places(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the places of taps, rows and columns in a plane."""
        window = self.planes.window
        begins, last = window.begins, len(self.planes.image) - 1
        axes = [
            [self.planes.place(x + begins[a], a) for x in range(n) if x + begins[a] < self.planes.padded[a]]
            for a, n in enumerate(self.planes.image)
        ]
        lines = axes[0] if last else [0]
        return tuple(np.array(places, np.uint32) for places in (self.planes.taps, lines, axes[last]))  # type: ignore[return-value]

    def text(self) -> str:
        """Return the body."""
        batch, channels = self.given[:2]
        width = self.given[-1]
        _, lines, columns = self.places()
        out_height, out_width = (1, *self.planes.out)[-2:]
        line = self.planes.steps[0] if len(self.planes.image) > 1 else self.planes.pixels
        values = {
            "batch": batch,
            "channels": channels,
            "image": math.prod(self.given[2:]),
            "width": width,
            "lines": len(lines),
            "columns": len(columns),
            "plane": self.planes.size,
            "floats": self._plane_floats,
            "room": self.room,
            "out_channels": self.channels,
            "taps": len(self.planes.taps),
            "terms": channels * len(self.planes.taps),
            "pixels": out_height * out_width,
            "line": line,
            "out_width": out_width,
            "levels": self.levels,
        }
        return _BODY.format(**values)


_BODY = """
float *const planes = scratch, *const most = planes + {floats};
const size_t apart = BS_FLOATS < BS_BLOCK ? BS_FLOATS : {terms} * BS_BLOCK;
memset(planes, 0, {floats} * sizeof *planes);
for (size_t n = 0; n < {batch}; ++n) {{
    const float *image = in0 + n * {channels} * {image};
    for (size_t c = 0; c < {channels}; ++c)
        for (size_t y = 0; y < {lines}; ++y) {{
            const float *from = image + c * {image} + y * {width};
            float *to = planes + c * {plane} + k2[y];
            for (size_t x = 0; x < {columns}; ++x)
                to[k3[x]] = from[x];
        }}
    const double greatest = bs_greatest_size(image, {channels} * {image});
    for (size_t c = 0; c < {room}; ++c)
        most[c] = 0.5f - (float)(k6[2 * c] * greatest + k6[2 * c + 1]);
    for (size_t start = 0; start < {pixels}; start += BS_PIXELS) {{
        const size_t count = {pixels} - start < BS_PIXELS ? {pixels} - start : BS_PIXELS;
        uint8_t *to = out0 + (n * {pixels} + start) * {out_channels};
        const float *at[BS_PIXELS];
        for (size_t i = 0; i < BS_PIXELS; ++i) {{
            const size_t pixel = start + (i < count ? i : count - 1);
            at[i] = planes + pixel / {out_width} * {line} + pixel % {out_width};
        }}
        for (size_t c = 0; c < {out_channels}; c += BS_CHANNELS, to += BS_CHANNELS) {{
            const size_t several = {out_channels} - c < BS_CHANNELS ? {out_channels} - c : BS_CHANNELS;
            float sums[BS_PIXELS * BS_CHANNELS];
            uint8_t codes[BS_PIXELS * BS_CHANNELS];
            bs_float_sums(k0 + c * {terms}, apart, at, {channels}, {plane}, k1, {taps}, sums);
            if (!bs_decide(k5 + c, {room}, most + c, sums, codes)) {{
                uint8_t open_ones[BS_PIXELS * BS_CHANNELS];
                bs_undecided(k5 + c, {room}, most + c, sums, open_ones);
                for (size_t i = 0; i < count * BS_CHANNELS; ++i) {{
                    const size_t own = c + i % BS_CHANNELS;
                    if (!open_ones[i] || own >= {out_channels})
                        continue;
                    const int32_t level = bs_exact_level(
                        k0 + own / BS_BLOCK * BS_BLOCK * {terms} + own % BS_BLOCK, BS_BLOCK, at[i / BS_CHANNELS],
                        {channels}, {plane}, k1, {taps}, k4 + own * {levels}, {levels});
                    codes[i] = (uint8_t)((int32_t)k5[4 * {room} + own] + (int32_t)k5[5 * {room} + own] * level);
                }}
            }}
            for (size_t i = 0; i < count; ++i)
                memcpy(to + i * {out_channels}, codes + i * BS_CHANNELS, several);
        }}
    }}
}}
"""


_NO_ATTRIBUTES: MappingProxyType[str, Any] = MappingProxyType({})


def match_real_convolution(def_use: DefUse, node: Node) -> FusionGroup | None:
    """Match convolutions of an input of the network, without groups, and the monotone chain to codes.

    Given:   %acc = conv(%input, weights); %codes = quantize(relu(batch_norm(%acc)))    %input of float32
    Result:  %codes = decide(float32 sums, thresholds)    exact sums where float32 is too near to a threshold
    """
    sums = find_real_sums(def_use, node)
    return _make_group(def_use, sums) if sums else None


def _make_group(def_use: DefUse, sums: RealSums) -> FusionGroup | None:
    names = Names(def_use.graph.edges, def_use.graph.file_names)
    start = names.make(f"{sums.end}.sums")
    scaled = DefUse(_replace_convolutions(def_use.graph, sums, start, names), def_use.target)
    chains = find_chains(scaled, start, monotone=True)
    chain = next((c for c in chains if operand_of(scaled.graph.edges[c.end]) and not c.constant_nodes), None)
    step_function = find_real_step_function(scaled.graph, chain) if chain else None
    if chain is None or step_function is None:
        return None
    rows = sums.weights.reshape(len(sums.weights), -1)
    thresholds = np.sort(double_thresholds(step_function), axis=1)
    thresholds = np.broadcast_to(thresholds, (len(rows), thresholds.shape[1]))
    formulas = fit_level_formulas(thresholds, rows)
    if formulas is None:
        return None
    nodes = (*sums.nodes, *(n for n in chain.nodes if n in def_use.graph.nodes))
    return RealConvolution(def_use, nodes, sums, step_function, DecidedSums(thresholds, formulas))


def _replace_convolutions(graph: Graph, sums: RealSums, start: str, names: Names) -> Graph:
    """Return the graph with an input of sums, scaled and with a number added, in place of the convolutions."""
    sums_edge, last = graph.edges[sums.end], sums.nodes[-1]
    scale, added, scaled = (names.make(f"{sums.end}.{what}") for what in ("scale", "added", "scaled"))
    per_channel = (1, len(sums.scales), *[1] * (len(sums_edge.shape) - 2))
    shapes = {start: sums_edge.shape, scale: per_channel, added: per_channel, scaled: sums_edge.shape}
    new = {name: Edge(name, shape, "float64", Reals()) for name, shape in shapes.items()}
    times = replace(last, name=scaled, op="mul", inputs=(start, scale), outputs=(scaled,), attributes=_NO_ATTRIBUTES)
    plus = replace(last, name=added, op="add", inputs=(scaled, added), attributes=_NO_ATTRIBUTES)
    values = {scale: sums.scales, added: sums.added}
    more = {name: value.reshape(per_channel).astype(np.float64) for name, value in values.items()}
    return replace(
        graph,
        nodes=tuple(link for n in graph.nodes for link in ((times, plus) if n is last else (n,))),
        edges=MappingProxyType({**graph.edges, **new}),
        constants=MappingProxyType({**graph.constants, **more}),
    )


@dataclass(frozen=True, eq=False)
class DecidedSums:
    """Ascending thresholds of sums (channels, levels), and the formulas that stand for them in float32."""

    thresholds: Tensor
    formulas: LevelFormulas


class RealConvolution(FusionGroup):
    """Convolutions of float32 and the codes of their sums.

    Args:
        def_use: The graph.
        nodes: The convolutions and the chain.
        sums: The sums of products.
        step_function: The codes that the chain gives for the sums.
        decided: Thresholds, and the formulas that decide levels in float32.
    """

    def __init__(
        self,
        def_use: DefUse,
        nodes: tuple[Node, ...],
        sums: RealSums,
        step_function: StepFunction,
        decided: DecidedSums,
    ) -> None:
        self.def_use, self.nodes, self.sums, self.step_function, self.decided = (
            def_use,
            nodes,
            sums,
            step_function,
            decided,
        )
        self.inputs, self.outputs = (sums.source,), nodes[-1].outputs

    def reads(self, edge: str) -> tuple[Format, ...]:
        return (caller_format(self.def_use.graph.edges[edge]),)

    def writes(self, edge: str) -> tuple[Format, ...]:
        return code_formats(self.def_use.graph.edges[edge], (Layout.NHWC,))

    def step(self, buffers: Mapping[str, Buffer]) -> PlainStep:
        given, result = buffers[self.inputs[0]], buffers[self.outputs[0]]
        shape, thresholds = self.sums.shape, self.decided.thresholds
        body = RealBody(shape, len(thresholds), ImagePlanes(self.sums.window, shape[2:]), thresholds.shape[1])
        lines = self._lines(result.edge, body.room)
        constants = (self._weights(body.room), *body.places(), thresholds, *lines)
        text, room = body.text(), body.scratch_bytes
        return PlainStep(self.names, (given.name,), (result.name,), text, constants, room, ("bs_decide.h",))

    def _weights(self, room: int) -> Tensor:
        """Return weights in blocks of channels; the weights of one term are next to each other."""
        rows = _pad_rows(self.sums.weights.reshape(len(self.sums.weights), -1), room)
        return rows.reshape(-1, BLOCK, rows.shape[1]).swapaxes(1, 2).astype(np.float32)

    def _lines(self, edge: Edge, room: int) -> tuple[Tensor, Tensor]:
        """Return formulas of levels with the first code and the direction of codes, a row each; and margins."""
        (first,) = codes_of(np.array([self.step_function.least]), edge).tolist()
        rising = np.broadcast_to(self.step_function.rising, len(self.sums.weights))
        codes = np.stack([np.where(rising, first, first + self.step_function.levels), np.where(rising, 1, -1)], 1)
        lines = np.concatenate([self.decided.formulas.rows, codes], 1)
        return _pad_rows(lines, room).T.astype(np.float32), _pad_rows(self.decided.formulas.margins, room)


def _pad_rows(rows: Tensor, count: int) -> Tensor:
    """Return rows followed by rows of zeros, `count` together."""
    return np.pad(rows, ((0, count - len(rows)), (0, 0)))
