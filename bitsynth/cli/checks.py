"""Checks of `bitsynth doctor`: which tools are installed, and how to get missing tools."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from bitsynth import paths, toolchain
from bitsynth.errors import INSTALL_Z3, BitsynthError
from bitsynth.host import features
from bitsynth.host.facts import here
from bitsynth.host.placement import cpu_here
from bitsynth.isa import architecture, load
from bitsynth.isa.architecture import Qemu
from bitsynth.isa.load import Isa
from bitsynth.run import qemu
from bitsynth.run.runner import runner_for
from bitsynth.toolchain.cache import secure
from bitsynth.toolchain.compiler import candidates, get_preferred, package, probe

_OWN_SETS = "BITSYNTH_ISA"
"""The variable of folders of a user's own instruction sets."""
OTHER_PROCESSORS = "other processors"
"""The group of missing features, and on boards missing tools, that only code for other architectures needs."""
_EMULATOR = "pip install 'bitsynth[emulator]'"
_BENCH = "pip install 'bitsynth[bench]'"
_PACKAGES = (
    ("z3-solver", "finds and proves kernels", INSTALL_Z3),
    ("numpy", "reference results and arrays to call kernels with", "pip install numpy"),
    ("jinja2", "writes C", "pip install jinja2"),
    ("cffi", "calls kernels natively", "pip install cffi"),
    ("msgspec", "reads instruction sets and kernels", "pip install msgspec"),
    ("filelock", "shares the caches between processes", "pip install filelock"),
    ("ziglang", "a C compiler for this and for other processors", _EMULATOR),
    ("unicorn", "runs and counts other processors' instructions", _EMULATOR),
    ("pyelftools", "loads code into an emulator", _EMULATOR),
    ("onnx", "reads and writes models", _BENCH),
    ("tflite", "reads TensorFlow Lite files", "pip install 'bitsynth[network]'"),
    ("matplotlib", "draws the published figures", _BENCH),
    ("optuna", "finds faster schedules of layers", "pip install 'bitsynth[tune]'"),
)
_FOR_OTHERS = ("ziglang", "unicorn", "pyelftools")
"""Packages that code of this processor does not need where a compiler is installed."""
_SHIPPED = {"depthwise": "depthwise kernels", "elementwise": "elementwise programs"}
"""The kinds of files that ship, by the name of their folder; files in other folders are microkernels."""


@dataclass(frozen=True)
class Finding:
    """A tool, package or feature that was looked for: its version or path, "" if missing, and what to do then."""

    name: str
    found: str
    purpose: str
    advice: str
    group: str = "tools"

    @property
    def ok(self) -> bool:
        """Return whether the tool was found."""
        return bool(self.found)


@dataclass(frozen=True)
class Verdict:
    """Whether code for an instruction set compiles and runs here: natively, emulated or not."""

    isa: str
    run: str
    why: str

    def __str__(self) -> str:
        return f"{self.isa}: {'cannot' if self.run == 'cannot' else 'run'}: {_brief(self.why)}"


@dataclass(frozen=True)
class DoctorReport:
    """All findings, and a verdict for each instruction set."""

    findings: tuple[Finding, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def ok(self) -> bool:
        """Whether every instruction set can be run, sets of BITSYNTH_ISA too."""
        is_faulty = any(f.name == _OWN_SETS and not f.ok for f in self.findings)
        return bool(self.verdicts) and not is_faulty and all(v.run != "cannot" for v in self.verdicts)


def _brief(why: str) -> str:
    """Return the fault and the first error line of the tool that failed, without the rest of its output."""
    first, *others = why.splitlines() or [""]
    return "; ".join([first, *[line.strip() for line in others if "error: " in line][:1]])


def examine() -> DoctorReport:
    """Look for every tool, and compile and run a probe for each instruction set.

    If BITSYNTH_ISA is faulty that is a finding, and the sets that ship are examined without it.
    """
    try:
        load.names()
    except BitsynthError as error:
        fault = Finding(_OWN_SETS, "", "your own sets", str(error).removeprefix(f"{_OWN_SETS}: "), "kernels and code")
        with _unset(_OWN_SETS):
            return _examine([fault])
    return _examine([])


@contextmanager
def _unset(variable: str) -> Iterator[None]:
    """Take a variable out of the environment in this block."""
    value = os.environ.pop(variable)
    try:
        yield
    finally:
        os.environ[variable] = value


def _examine(faults: list[Finding]) -> DoctorReport:
    sets = list(_isas())
    findings = [
        Finding("python", platform.python_version(), "runs bitsynth", "", "packages"),
        *(_package(*row) for row in _PACKAGES),
        *(_compilers(arch) for arch in architecture.load_architectures()),
        *(
            _qemu(arch, table.emulator.qemu)
            for arch, table in architecture.load_architectures().items()
            if table.emulator
        ),
        *_processor(),
        *(_features(isa) for isa in sets if not isinstance(isa, Verdict)),
        _build_cache(),
        _folder("kernel cache", paths.user_kernels().absolute(), "keeps solved kernels", "BITSYNTH_CACHE"),
        _count_shipped(),
        *faults,
    ]
    return DoctorReport(tuple(findings), tuple(isa if isinstance(isa, Verdict) else _verdict(isa) for isa in sets))


def _isas() -> Iterator[Isa | Verdict]:
    """Yield every instruction set without its instructions, which take long to read, or why its table is wrong."""
    for name in load.names():
        try:
            yield Isa(load.load_table(name), {})
        except BitsynthError as error:
            yield Verdict(name, "cannot", str(error))


def _version(package: str) -> str:
    """Return the version of an installed package; "" if it is not installed."""
    if version := _recorded_versions().get(package):
        return version
    from importlib import metadata  # which imports the standard library's package for email: much of a short command

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


@cache
def _recorded_versions() -> Mapping[str, str]:
    """Return versions of packages by name, read off the folders that installers leave: NAME-VERSION.dist-info."""
    versions: dict[str, str] = {}
    for place in sys.path:
        try:
            folders = os.listdir(place or ".")
        except OSError:  # not there, an archive, or not to be read
            continue
        for folder in folders:
            if folder.endswith(".dist-info"):
                name, _, version = folder.removesuffix(".dist-info").rpartition("-")
                versions.setdefault(re.sub("[-_.]+", "-", name).lower(), version)
    return versions


def _package(name: str, purpose: str, advice: str) -> Finding:
    version = _version(name)
    is_unneeded = not version and name in _FOR_OTHERS and _is_board()
    return Finding(name, version, purpose, advice, OTHER_PROCESSORS if is_unneeded else "packages")


def _is_board() -> bool:
    """Return whether other machines emulate this one's architecture: such a machine runs its own code only."""
    table = architecture.load_architectures().get(features.arch())
    return bool(table and table.emulator)


def concerns(verdict: Verdict) -> bool:
    """Return whether a verdict matters on this machine."""
    if verdict.run != "cannot" or not _is_board():
        return True
    try:
        return load.load_table(verdict.isa).arch == features.arch()
    except BitsynthError:
        return True


def _processor() -> Iterator[Finding]:
    """Yield the processor, with the cost model that is chosen for it, and the emulator if one runs the system."""
    known = {cpu: None for name in load.names() if (cpu := _cpu(name))}
    title = ", ".join([here().title, *(f"kernels for {cpu}" for cpu in known)])
    yield Finding("processor", title, "decides which kernels are chosen", "", "processor")
    if by := here().emulator:
        yield Finding("times", "", "measure kernels", f"{by} runs this system; name a board with --device", "processor")


def _cpu(name: str) -> str:
    try:
        return cpu_here(load.load_table(name))
    except BitsynthError:
        return ""


def _compilers(arch: str) -> Finding:
    what = f"{'native' if arch == features.arch() else 'cross'} C compilers ({arch})"
    purpose = f"compile kernels for {arch}"
    try:
        versions = [c.version if c.name in c.version else f"{c.name}: {c.version}" for c in candidates(arch)]
    except BitsynthError as error:
        return Finding(what, "", purpose, _brief(str(error)), "compilers")
    group = "compilers" if versions or arch == features.arch() or not _is_board() else OTHER_PROCESSORS
    return Finding(what, "; ".join(versions), purpose, f"install {package(arch)}, or {_EMULATOR}", group)


def _qemu(arch: str, table: Qemu) -> Finding:
    advice, path = f"install Debian's {table.package}", qemu.find(table) or ""
    group = "emulators" if path or not _is_board() else OTHER_PROCESSORS
    return Finding(table.programs[0], path, f"runs {arch} code fast", advice, group)


def _features(isa: Isa) -> Finding:
    name, purpose = f"processor features of {isa.name}", f"run {isa.name} kernels without an emulator"
    advice = f"use an {isa.table.arch} machine that has {', '.join(isa.table.wanted_features) or 'it'}"
    if isa.table.arch != features.arch():
        return Finding(name, "", purpose, f"this processor is {features.arch()}; {advice}", OTHER_PROCESSORS)
    if absent := features.missing(isa.table):
        return Finding(name, "", purpose, f"this processor lacks {', '.join(absent)}; {advice}", "processor")
    sets = [f"no {name}" if features.lacking(f.host) else name for name, f in isa.table.features.items()]
    return Finding(name, ", ".join([*(isa.table.wanted_features or [isa.table.arch]), *sets]), purpose, "", "processor")


def _build_cache() -> Finding:
    finding = _folder("build cache", toolchain.cache_folder(), "keeps compiled kernels", "BITSYNTH_BUILD_CACHE")
    try:
        secure(toolchain.cache_folder(), make=False)
    except OSError as error:
        return replace(finding, found="", advice=f"{error.strerror}: set BITSYNTH_BUILD_CACHE to another folder")
    return finding


def _folder(name: str, folder: Path, purpose: str, variable: str) -> Finding:
    nearest = next((p for p in (folder, *folder.parents) if os.path.exists(p)), folder)
    usable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    advice = f"{folder} cannot be written: set {variable} to a folder that can"
    return Finding(name, str(folder) if usable else "", purpose, advice, "kernels and code")


def _count_shipped() -> Finding:
    folder = paths.shipped_kernels()
    counts = dict.fromkeys(["microkernels", "elementwise programs", "depthwise kernels"], 0)
    for place, _, names in os.walk(folder):
        kind = _SHIPPED.get(os.path.basename(place), "microkernels")
        counts[kind] += sum(name.endswith(".json") for name in names)
    counted = f"{', '.join(f'{n} {kind}' for kind, n in counts.items())} in {folder}" if all(counts.values()) else ""
    advice = "reinstall bitsynth, or search anew"
    return Finding("shipped kernels", counted, "proved kernels that need no search", advice, "kernels and code")


def _verdict(isa: Isa) -> Verdict:
    try:
        compiler = get_preferred(isa)
        needs = isa.requirements(matrices=isa.table.matrices is not None)
        runner = runner_for(isa, probe(isa, compiler), needs=needs)
        array = np.zeros(64, np.uint8)
        result = runner.call("bs_probe", array, array.size)
        runner.close()
    except (ImportError, BitsynthError, OSError) as error:
        return Verdict(isa.name, "cannot", str(error))
    if result != 7 or not array.all():
        return Verdict(isa.name, "cannot", f"a probe ran wrong, {runner.description}, compiled by {compiler.name}")
    run = "natively" if runner.description.startswith("natively") else "emulated"
    return Verdict(isa.name, run, f"{runner.description}, compiled by {compiler.name}")
