"""The convolutions of ResNet-18 as in Table 1 of CGO 2020: batch 1, padding k // 2."""

from __future__ import annotations

from dataclasses import dataclass

from bitsynth.errors import SpecError
from bitsynth.layers.geometry import Geometry, edges


@dataclass(frozen=True)
class ResNetLayer:
    """A square convolution: input height and width, channels in and out, kernel size, stride."""

    name: str
    height: int
    in_channels: int
    out_channels: int
    kernel: int
    stride: int

    @property
    def padding(self) -> int:
        """Zeros on each side of the image."""
        return self.kernel // 2

    @property
    def image(self) -> tuple[int, int]:
        """Height and width of the image."""
        return self.height, self.height

    @property
    def geometry(self) -> Geometry:
        """The geometry of the convolution."""
        window = (self.kernel,) * 2, (self.stride,) * 2, edges(self.padding), (1, 1)
        return Geometry(self.in_channels, self.out_channels, 1, *window)

    @property
    def out_height(self) -> int:
        """Height and width of the output."""
        return (self.height + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def macs(self) -> int:
        """Multiply-accumulates, including the ones with padding."""
        return self.out_height**2 * self.out_channels * self.in_channels * self.kernel**2


LAYERS = (
    ResNetLayer("C2", 56, 64, 64, 3, 1),
    ResNetLayer("C3", 56, 64, 64, 1, 1),
    ResNetLayer("C4", 56, 64, 128, 3, 2),
    ResNetLayer("C5", 56, 64, 128, 1, 2),
    ResNetLayer("C6", 28, 128, 128, 3, 1),
    ResNetLayer("C7", 28, 128, 256, 3, 2),
    ResNetLayer("C8", 28, 128, 256, 1, 2),
    ResNetLayer("C9", 14, 256, 256, 3, 1),
    ResNetLayer("C10", 14, 256, 512, 3, 2),
    ResNetLayer("C11", 14, 256, 512, 1, 2),
    ResNetLayer("C12", 7, 512, 512, 3, 1),
)


def select_layers(text: str) -> list[ResNetLayer]:
    """Return the layers in `C2,C6`, in the order above; SpecError for one that does not exist."""
    names, known = text.split(","), [layer.name for layer in LAYERS]
    if unknown := [name for name in names if name not in known]:
        raise SpecError(f"--layers: unknown {unknown[0]!r}; known: {', '.join(known)}")
    return [layer for layer in LAYERS if layer.name in names]
