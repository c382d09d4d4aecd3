"""Caps that keep a package from instructions that a set lacks: `isa_specs/<isa>/baselines/peers.toml`."""

from __future__ import annotations

import msgspec

from bitsynth import paths
from bitsynth.errors import SpecError


class Cap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The environment that caps a package, or the reason why it is `left_out`."""

    env: dict[str, str] = {}
    left_out: str = ""


def caps(isa: str) -> dict[str, Cap]:
    """Return the cap of every package that the set names; others run as they are. SpecError if the file is wrong."""
    file = paths.isa_folder(isa) / "baselines" / "peers.toml"
    if not file.is_file():
        return {}
    try:
        return msgspec.toml.decode(file.read_bytes(), type=dict[str, Cap])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{file}: {error}") from None
