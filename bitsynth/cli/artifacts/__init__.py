"""What the command line says about proved artifacts: a file a kind, with its page, its rows and its checks."""

from __future__ import annotations

from typing import Any

from bitsynth.cli.artifacts.artifact import NamedArtifact
from bitsynth.cli.artifacts.depthwise import DepthwiseArtifact
from bitsynth.cli.artifacts.elementwise import ElementwiseArtifact
from bitsynth.cli.artifacts.matmul import MatmulArtifact
from bitsynth.store.kinds import KINDS

ARTIFACTS: dict[str, type[NamedArtifact[Any, Any]]] = {
    each.kind.name: each for each in (MatmulArtifact, DepthwiseArtifact, ElementwiseArtifact)
}
"""What the commands say of each kind of `KINDS`, by its name, in the order of `bitsynth list`."""


def load_named(name: str, variant: str | None = None) -> NamedArtifact[Any, Any]:
    """Return the stored artifact called `name`, accepted; SpecError if there is none.

    `variant` chooses among kernels of one name.
    """
    for kind in KINDS.values():
        if (proved := kind.load_named(name, variant)) is not None:
            return ARTIFACTS[kind.name](name, proved)
    raise AssertionError("the last kind refuses what is no name")
