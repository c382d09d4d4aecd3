"""`bitsynth verify` of a network's machine code: kernels, packers and layers, and how much code is proved."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from bitsynth.cli import output
from bitsynth.cli.commands.verify_network import (
    CheckedCertificate,
    check_claims,
    compare_c,
    find_certificates,
    require_around,
)
from bitsynth.cli.output import require_writable
from bitsynth.cli.report import ReportLine, print_lines
from bitsynth.errors import Refuted
from bitsynth.progress import Progress

if TYPE_CHECKING:
    from bitsynth.network.certificate.objects import ObjectsRecord
    from bitsynth.network.library import NetworkText
    from bitsynth.objects.library import CompiledLibrary

_ADVICE = "its record is written there"
_OF_LAYERS = "which activation meets which weight"
_VERDICTS = {"all sizes": "for every K", "listed sizes": "for listed sizes"}


def verify_objects(name: str, path: Path | None, compiler: str | None, *, strict: bool, as_json: bool) -> None:
    """Prove kernels, packers and layers of a library at `path`, or of one that `compiler` builds, and keep a record.

    The certificates of the network are checked before. Refuted if machine code of a kernel is wrong or not understood,
    or if a packer or layer is wrong; with `strict` also if one of them is not proved. Then nothing is written.
    """
    from bitsynth.files import require_ours
    from bitsynth.network.certificate import objects

    whole, paths = find_certificates(Path(name))
    require_writable(whole.parent, _ADVICE)
    require_ours(objects.record_path(whole))
    with output.progress("verify") as say, tempfile.TemporaryDirectory(prefix="bitsynth-") as folder:
        checked = [_check(each, say) for each in paths]
        if paths != [whole]:
            require_around(whole, checked)
        texts = [each.library.text for each in checked if each.library]
        library, flags = _read_or_build(whole, path, compiler, texts, Path(folder), say)
        verdicts, layers = objects.prove_library(library, texts, say)
        kept_at = path or whole.with_name(_stem(whole) + objects.LIBRARY_ENDS)
        record = objects.ObjectsRecord(
            certificates={each.path.name: each.certificate.digest for each in checked},
            library=objects.relative_to(whole.parent, kept_at),
            digest=library.digest,
            compilers=library.compilers,
            flags=flags,
            kernels=verdicts,
            code=objects.code_shares(library, texts, verdicts),
            layers=layers,
        )
        of_kernels = [(v.kernel, v.why) for v in verdicts if v.verdict == "refused" or (strict and not v.is_proved)]
        of_packers = [(x.function, x.why) for v in verdicts for x in v.packers if strict and x.why]
        of_layers = [(v.name, v.why) for v in layers if v.verdict == "refused" or (strict and not v.is_proved)]
        lacking = of_kernels + of_packers + of_layers
        if not lacking:
            _write(record, whole, None if path else library.path)
    if as_json:
        output.write_json(_facts(record))
    else:
        lines = [line for each in checked for line in each.lines]
        lines.append(ReportLine("library", (record.library, *record.compilers), free=True))
        _print(lines, record)
    if lacking:
        name, why = lacking[0]
        raise Refuted(f"{record.library}: {name} is not proved: {why}")


def _check(path: Path, say: Progress) -> CheckedCertificate:
    """Return a certificate whose claims hold and whose C equals the C of its folder."""
    checked = check_claims(path, say, strict=False)
    checked.library, line = compare_c(checked, say)
    checked.lines.append(line)
    return checked


def _read_or_build(
    whole: Path, path: Path | None, compiler: str | None, texts: list[NetworkText], folder: Path, say: Progress
) -> tuple[CompiledLibrary, dict[str, list[str]]]:
    """Return the library at `path`, without flags; or one built in `folder`, with the flags of each kernel's C file."""
    from bitsynth import toolchain
    from bitsynth.isa.load import load
    from bitsynth.objects.declared import machine_table
    from bitsynth.objects.library import read_library

    isa = load(texts[0].program.isa)
    table = machine_table(isa)
    flags: dict[str, list[str]] = {}
    if path is None:
        chosen = toolchain.find_compiler(isa, compiler or "")
        say(f"compiling with {chosen.name}")
        build = folder / "build"
        build.mkdir()
        built = toolchain.build_library(whole.parent, _stem(whole), build, chosen)
        path = built.path
        kernels = {kernel for text in texts for kernel in text.parts.kernels}
        flags = {file: words for file, words in built.flags.items() if Path(file).stem in kernels}
    objects = folder / "objects"
    objects.mkdir()
    return read_library(path, table, objects), flags


def _write(record: ObjectsRecord, whole: Path, library: Path | None) -> None:
    """Write the record, and before it the library if it was compiled here."""
    from bitsynth.files import replace_file
    from bitsynth.network.certificate.objects import library_of, record_path, record_text

    path = record_path(whole)
    if library:
        replace_file(library_of(record, path), library.read_bytes(), _ADVICE)
    replace_file(path, record_text(record).encode(), _ADVICE)


def _stem(certificate: Path) -> str:
    from bitsynth.network.certificate.write import ENDS

    return certificate.name.removesuffix(ENDS)


def _print(lines: list[ReportLine], record: ObjectsRecord) -> None:
    proved, everywhere = len(record.proved), len(record.proved_for_all_sizes)
    functions, size, of_proved, proved_size = _totals(record)
    kernels = f"{proved} of {output.count(len(record.kernels), 'kernel')}, {everywhere} of them for every K"
    share = f"{proved_size:,} of {size:,} bytes of code, {of_proved} of {output.count(functions, 'function')}"
    layers = f"{len(record.proved_layers)} of {output.count(len(record.layers), 'layer')}: {_OF_LAYERS}"
    packers = [x for each in record.kernels for x in each.packers]
    of_packers = f"{sum(not x.why for x in packers)} of {output.count(len(packers), 'packer')} for listed sizes"
    others = "layers and runtime are proved for the shapes of this network alone; other code is tested, not proved"
    print_lines(*lines)
    reasons = [f"{'why':9}{x.why if x.kernel in x.why else f'{x.kernel}: {x.why}'}" for x in record.kernels if x.why]
    reasons += [f"{'packer':9}{x.function}: {x.why}" for x in packers if x.why]
    reasons += [f"{'why':9}step {x.step}: {x.why}" for x in record.layers if x.why]
    output.write("", output.fit_table(partial(_kernels, record)), "")
    layers_table = output.fit_named_table(*(partial(_layers, record, brief) for brief in (False, True)))
    output.write(layers_table, "", *reasons, *([""] if reasons else []))
    output.write(output.fit_table(partial(_code, record)), "")
    print_lines(ReportLine("proved", (kernels, of_packers, layers, share, others), free=True))


def _kernels(record: ObjectsRecord, gap: int) -> Table:
    """Return a table with a row for each kernel."""
    table = output.table(
        "kernel", "functions", "bytes", "machine code", "s", right=("functions", "bytes", "s"), gap=gap
    )
    for each in record.kernels:
        functions, size = (str(len(each.functions)), f"{_size(each.functions):,}") if each.is_proved else ("", "")
        verdict = _VERDICTS.get(each.verdict, each.verdict)
        table.add_row(each.kernel, functions, size, verdict, f"{each.seconds:.1f}" if each.seconds else "")
    return table


def _layers(record: ObjectsRecord, brief: bool, gap: int, room: int) -> Table:
    """Return a table with a row for each layer, its last node in at most `room` columns; a brief one has no kernels."""
    kernel = () if brief else ("kernel",)
    columns = ("layer", "step", *kernel, "results", "machine code", "s")
    table = output.table(*columns, right=("step", "results", "s"), gap=gap)
    for each in record.layers:
        results, kernels = f"{each.results:,}" if each.results else "", () if brief else (each.kernel,)
        name = output.cut_name(each.node, room)
        table.add_row(name, str(each.step), *kernels, results, each.verdict, f"{each.seconds:.1f}")
    return table


def _size(functions: list[tuple[str, int, int]]) -> int:
    return sum(size for _, _, size in functions)


def _code(record: ObjectsRecord, gap: int) -> Table:
    """Return a table with a row for each part of the library's code."""
    columns = ("functions", "proved", "bytes", "of them proved")
    table = output.table("code of", *columns, right=columns, gap=gap)
    for each in record.code:
        cells = (each.functions, each.proved_functions, each.bytes, each.proved_bytes)
        table.add_row(each.part, *(f"{x:,}" for x in cells))
    return table


def _totals(record: ObjectsRecord) -> tuple[int, int, int, int]:
    shares = [(each.functions, each.bytes, each.proved_functions, each.proved_bytes) for each in record.code]
    functions, size, proved, proved_size = map(sum, zip(*shares, strict=True))
    return functions, size, proved, proved_size


def _facts(record: ObjectsRecord) -> dict[str, Any]:
    import msgspec

    facts: dict[str, Any] = msgspec.to_builtins(record)
    functions, size, proved, proved_size = _totals(record)
    del facts["about"], facts["format"]
    return {**facts, "functions": functions, "bytes": size, "proved_functions": proved, "proved_bytes": proved_size}
