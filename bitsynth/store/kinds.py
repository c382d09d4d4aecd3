"""The table of the kinds of artifacts that are stored."""

from __future__ import annotations

from typing import Any

from bitsynth.store.artifacts import ArtifactKind
from bitsynth.store.depthwise import DEPTHWISE
from bitsynth.store.elementwise import ELEMENTWISE
from bitsynth.store.matmul import MATMUL

KINDS: dict[str, ArtifactKind[Any, Any]] = {kind.name: kind for kind in (DEPTHWISE, ELEMENTWISE, MATMUL)}
"""Each kind by its name. A name that a user gives is looked up in this order; the last kind refuses what is no name."""
