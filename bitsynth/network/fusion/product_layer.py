"""Layers of products: the operands for which there is a kernel, and the layer in the layouts asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bitsynth.errors import NoKernel, SpecError
from bitsynth.layers.conv import Conv2d
from bitsynth.layers.dense import Dense
from bitsynth.layers.epilogues import Epilogue, gives_codes
from bitsynth.layers.packed import PackedLayer
from bitsynth.network.def_use import DefUse, NetworkTarget
from bitsynth.network.fusion.codes import operand_of
from bitsynth.network.fusion.product import Product
from bitsynth.network.operands import activations, weights
from bitsynth.network.program import CHANNELS_LAST, PACKED, PLAIN
from bitsynth.spec.matmul import MatmulOperand


@dataclass(frozen=True, eq=False)
class LayerMaker:
    """What makes the layer of a product in any layouts: `act` and `wgt` are its operands."""

    product: Product
    target: NetworkTarget
    act: MatmulOperand
    wgt: MatmulOperand
    epilogue: Epilogue | None
    codes: MatmulOperand | None
    """What results are codes of; None for sums."""

    def layer(self, layout: str = CHANNELS_LAST, out_layout: str = CHANNELS_LAST) -> PackedLayer:
        """The packed layer; NoKernel or SpecError if there is none."""
        given, made = (CHANNELS_LAST if name == PLAIN else name for name in (layout, out_layout))
        return self._of_bytes if given == made == CHANNELS_LAST else self._packed(given, made)

    @cached_property
    def _of_bytes(self) -> PackedLayer:
        """The layer that most edges ask for, which also tells whether there is any."""
        return self._packed(CHANNELS_LAST, CHANNELS_LAST)

    def _packed(self, layout: str, out_layout: str) -> PackedLayer:
        options = {**self._options, "layout": layout, "out_layout": out_layout}
        if out_layout == PACKED and self.codes:
            options["out_encoding"] = self.codes.encoding.value
        product = self.product
        weight = product.weight + self.wgt.zero
        if weight.ndim == 4:
            return Conv2d(weight, self.act.bits, self.wgt.bits, **product.window, **options).packed
        if product.flatten:
            options["flatten"] = product.flatten.shape
        return Dense(weight, self.act.bits, self.wgt.bits, **options).packed

    @property
    def _options(self) -> dict[str, Any]:
        return {
            "act_encoding": self.act.encoding.value,
            "weight_encoding": self.wgt.encoding.value,
            "zero_point": self.product.zero_point,
            "weight_zero_point": self.wgt.zero,
            "bias": self.product.bias,
            "isa": self.target.isa,
            "cpu": self.target.cpu,
            "threads": self.target.threads,
            "epilogue": self.epilogue,
            "image": self.product.image[1:],
        }

    @property
    def is_known(self) -> bool:
        """Whether there is a kernel, and sums stay in int32."""
        try:
            self.layer()
        except (NoKernel, SpecError):
            return False
        return True

    @property
    def packs(self) -> bool:
        """Whether results can be words: codes of as many bits as their operand has."""
        return gives_codes(self.epilogue) and self.codes is not None and self.epilogue.bits == self.codes.bits


def find_layer_maker(def_use: DefUse, product: Product, epilogue: Epilogue | None, end: str) -> LayerMaker | None:
    """The layer of a product by the narrowest operands that a kernel is known for; None if there is no such."""
    edges = def_use.graph.edges
    codes = operand_of(edges[end]) if epilogue else None
    for act in activations(edges[product.start].integers):
        for wgt in weights(product.weight):
            maker = LayerMaker(product, def_use.target, act, wgt, epilogue, codes)
            if maker.is_known:
                return maker
    return None
