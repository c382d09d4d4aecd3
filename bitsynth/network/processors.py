"""A network for several processors: each has its own layers and steps, and the C chooses one where it runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from bitsynth.emit.c_names import require_name
from bitsynth.errors import SpecError
from bitsynth.graph.read import ReadOptions
from bitsynth.isa.load import load
from bitsynth.layers.pool import Pool
from bitsynth.layers.processors import best_sets
from bitsynth.network.certificate.processors import processors_certificate
from bitsynth.network.certificate.write import ENDS
from bitsynth.network.compiling import compile
from bitsynth.network.library.text import processors_files
from bitsynth.network.run import Network
from bitsynth.progress import Progress, silent


def networks(
    model: str | os.PathLike[str] | Any,
    cpus: Sequence[str],
    *,
    isa: str = "auto",
    threads: int | Pool = 1,
    progress: Progress = silent,
    **options: Unpack[ReadOptions],
) -> dict[str, Network]:
    """Return the network of a file for each of `cpus`, on the best set of `isa`'s architecture that names it.

    Arguments and errors are as for `bitsynth.compile`; SpecError too for a processor that no such set names or that
    is named twice, and of an architecture whose programs cannot ask which processor runs them.
    """
    if isinstance(cpus, str):
        raise SpecError(f"want several processors, such as ['a76', 'a72'], not {cpus!r}")
    networks: dict[str, Network] = {}
    for cpu, own in best_sets(isa, cpus).items():
        progress(cpu)
        networks[cpu] = compile(model, isa=own, cpu=cpu, threads=threads, progress=progress, **options)
    return networks


def files(name: str, nets: Mapping[str, Network], *, weights_file: bool = False) -> dict[str, str | bytes]:
    """Return the C of networks by processor under `name`, the choice among them, and a certificate for all.

    Each has a folder, a library of its own with its certificate. SpecError if no network can be called so.
    """
    require_name(name)
    (arch,) = {load(net.program.isa).table.arch for net in nets.values()}
    apart = {cpu: f"{name}_{cpu}" for cpu in nets}
    content: dict[str, str | bytes] = {}
    for cpu, net in nets.items():
        own = net.files(apart[cpu], weights_file=weights_file)
        content |= {f"{apart[cpu]}/{file}": text for file, text in own.items()}
    texts = {cpu: net.text(apart[cpu], weights_file=weights_file) for cpu, net in nets.items()}
    content = {**processors_files(name, arch, texts), **content}
    return content | processors_certificate(name, {cpu: f"{own}/{own}{ENDS}" for cpu, own in apart.items()}, content)
