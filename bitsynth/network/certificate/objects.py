"""What was shown of the machine code of a network's kernels, and the record of it next to the network's certificate."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from bitsynth import __version__
from bitsynth.emit.glue import PROGRAMS_FILE
from bitsynth.errors import SpecError, ToolError
from bitsynth.files import MARK, read_file
from bitsynth.layers.packed import PackedLayer
from bitsynth.matmul import MatmulKernel
from bitsynth.network.certificate.write import ENDS, as_json
from bitsynth.network.library import NetworkText
from bitsynth.network.machine_code.prove import LayerVerdict, function_of, prove_layers
from bitsynth.network.program import LayerStep
from bitsynth.objects.depthwise import DepthwiseFunction, DepthwiseSizes
from bitsynth.objects.library import MAX_BYTES, CompiledLibrary
from bitsynth.objects.prove import require_provable
from bitsynth.objects.prove_library import KernelJob, KernelVerdict, prove_kernels
from bitsynth.printable import one_line, show
from bitsynth.progress import Progress

_ENDS, LIBRARY_ENDS = "_objects.json", "_objects.a"
"""Ends of the names of a record, and of a library that was compiled to be proved."""
FORMAT = 1
"""The version of the format of records."""
_ADVICE = "remove it, and prove the library again with --objects"


class CodeShare(msgspec.Struct, frozen=True):
    """The functions and bytes of a part of a library's code, and how many of each were proved."""

    part: str
    functions: int
    bytes: int
    proved_functions: int
    proved_bytes: int


class ObjectsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What was shown of a library.

    Attributes:
        certificates: The digests of the certificates of its networks, by file name.
        library: Its path, seen from the record if it is in the record's folder.
        digest: Its SHA-256 digest.
        compilers: What compilers wrote of themselves into it.
        flags: The flags of each kernel's C file, if bitsynth had it compiled.
    """

    about: str = MARK
    format: int = FORMAT
    version: str = __version__
    certificates: dict[str, str]
    library: str
    digest: str
    compilers: list[str]
    flags: dict[str, list[str]]
    kernels: list[KernelVerdict]
    code: list[CodeShare]
    layers: list[LayerVerdict] = []

    @property
    def proved(self) -> list[KernelVerdict]:
        """The kernels whose machine code was proved."""
        return [each for each in self.kernels if each.is_proved]

    @property
    def proved_layers(self) -> list[LayerVerdict]:
        """The layers for which it was proved that each activation meets its weight."""
        return [each for each in self.layers if each.is_proved]

    @property
    def proved_for_all_sizes(self) -> list[KernelVerdict]:
        """The kernels whose machine code was proved for all sizes."""
        return [each for each in self.kernels if each.verdict == "all sizes"]


def prove_library(
    library: CompiledLibrary, texts: Sequence[NetworkText], say: Progress
) -> tuple[list[KernelVerdict], list[LayerVerdict]]:
    """Return what is shown of the machine code of each kernel of the networks in a library, and of each layer.

    Kernels come in the order of layers. SpecError if a kernel's function is not in the library, or its object is
    damaged.
    """
    jobs, verdicts = list[KernelJob](), dict[str, KernelVerdict]()
    layers, sizes = prove_layers(library, texts, say), dict[str, dict[DepthwiseSizes, None]]()
    for layer in layers:
        sizes.setdefault(layer.function, {}).update(dict.fromkeys(layer.sizes))
    kernels = {function: kernel for text in texts for function, kernel in kernels_of(text).items()}
    for function, kernel in kernels.items():
        having = library.defining(function)
        try:
            require_provable(kernel.spec.isa if isinstance(kernel, MatmulKernel) else kernel.program.isa)
        except SpecError as why:
            verdicts[function] = KernelVerdict(
                kernel=kernel.name, function=function, object=having.name, verdict="cannot be proved", why=str(why)
            )
            continue
        jobs.append(KernelJob(kernel, function, having.path, having.name, tuple(sizes.get(function, ()))))
    verdicts |= {each.function: each for each in prove_kernels(jobs, say)}
    layers = [_if_kernel_is_proved(layer, verdicts[layer.function]) for layer in layers]
    return [verdicts[function] for function in kernels], layers


def _if_kernel_is_proved(layer: LayerVerdict, kernel: KernelVerdict) -> LayerVerdict:
    """Return the verdict of a layer, which is "not covered" unless its kernel is proved for the sizes that it needs.

    These are all, or those with which the layer calls a depthwise kernel: that was proved for them if it was proved.
    """
    of_layer = bool(layer.sizes)
    if not layer.is_proved or kernel.verdict == "all sizes" or (of_layer and kernel.is_proved):
        return layer
    why = f"its kernel, {kernel.kernel}, is not proved for {'its' if of_layer else 'all'} sizes"
    return msgspec.structs.replace(layer, verdict="not covered", why=why)


def kernels_of(text: NetworkText) -> dict[str, MatmulKernel | DepthwiseFunction]:
    """Return the kernels of a network's layers by the names of their functions in C."""
    layers = (step.layer for step in text.program.steps if isinstance(step, LayerStep))
    return {f"{text.name}_{text.parts.layer_names(layer)[0]}": _provable_kernel(layer) for layer in layers}


def _provable_kernel(layer: PackedLayer) -> MatmulKernel | DepthwiseFunction:
    """Return a layer's kernel as its machine code is compared with it."""
    kernel = layer.plan.kernel
    return kernel if isinstance(kernel, MatmulKernel) else function_of(kernel, layer)


def code_shares(
    library: CompiledLibrary, texts: Sequence[NetworkText], verdicts: Sequence[KernelVerdict]
) -> list[CodeShare]:
    """Return the functions and bytes of code of each part of a library, and how many of them were proved."""
    proved = {(each.object, *function) for each in verdicts if each.is_proved for function in each.functions}
    shares: dict[str, list[int]] = {}
    for each in library.objects:
        sizes = [size for name, _, _, size in proved if name == each.name]
        counts = each.functions, each.bytes, len(sizes), sum(sizes)
        part = _part(each.name.partition(".")[0], texts) if len(library.objects) > 1 else "library"
        shares[part] = [x + y for x, y in zip(shares.get(part, [0] * len(counts)), counts, strict=True)]
    return [CodeShare(part, *counts) for part, counts in sorted(shares.items())]


def _part(name: str, texts: Sequence[NetworkText]) -> str:
    """Return the part of a library that a C file without its end belongs to."""
    for text in texts:
        if name in text.parts.kernels or name in {Path(file).stem for x in text.parts.columns.values() for file in x}:
            return "kernels"
        if name in text.parts.epilogues or name == Path(PROGRAMS_FILE).stem:
            return "elementwise programs"
    return "runtime" if name.startswith("bs_") else "network"


def record_path(certificate: Path) -> Path:
    """Return where the record of a library lies, next to its certificate."""
    return certificate.with_name(certificate.name.removesuffix(ENDS) + _ENDS)


def list_files(certificate: Path) -> set[str]:
    """Return the names of the record next to a certificate and of the library that it names, if there are such."""
    path = record_path(certificate)
    record = read_record(path)
    return {path.name, record.library} if record else set()


def record_text(record: ObjectsRecord) -> str:
    """Return the text of a record."""
    return as_json(msgspec.to_builtins(record))


def read_record(path: Path) -> ObjectsRecord | None:
    """Return the record at `path`, None if there is none; SpecError if it is damaged, ToolError if it is not read."""
    try:
        record = msgspec.json.decode(read_file(path), type=ObjectsRecord)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror or error}") from None
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise SpecError(f"{path} is no record of machine code ({one_line(str(error))}); {_ADVICE}") from None
    if record.format != FORMAT:
        raise SpecError(f"{path} is no record of format {FORMAT}; {_ADVICE}")
    return record


def why_unfit(record: ObjectsRecord, path: Path, certificates: Mapping[str, str]) -> str:
    """Return why the record at `path` is not of the library that lies there and these certificates; "" if it is."""
    if record.certificates != certificates:
        return "it is of another network"
    library, name = library_of(record, path), show(record.library)
    try:
        digest = hashlib.sha256(read_file(library, MAX_BYTES)).hexdigest()
    except (OSError, SpecError, ValueError):  # ValueError: no path has a NUL.
        return f"{name} is not there any more"
    return "" if digest == record.digest else f"{name} is another library now"


def library_of(record: ObjectsRecord, path: Path) -> Path:
    """Return where the library of the record at `path` is."""
    return path.parent / record.library


def relative_to(folder: Path, library: Path) -> str:
    """Return the path of a library as seen from a folder that it is in, else its whole path."""
    absolute, inside = Path(os.path.abspath(library)), Path(os.path.abspath(folder))
    return str(absolute.relative_to(inside)) if absolute.is_relative_to(inside) else str(absolute)
