"""Start of the baselines whose packages are installed, with the reasons why others take no part."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from bitsynth.bench.baselines.caps import Cap, caps
from bitsynth.bench.baselines.process import BaselineProcess, started
from bitsynth.bench.sampling import TimedSubject
from bitsynth.errors import SpecError, ToolError

NEEDS = {
    "torch": ("torch",),
    "onnxruntime": ("onnxruntime", "onnx"),
    "openvino": ("openvino",),
    "ncnn": ("ncnn",),
}


@dataclass(frozen=True, eq=False)
class PackageBaseline(TimedSubject):
    """One variant of a package, such as `torch int8_onednn`."""

    variant: str
    process: BaselineProcess

    def time(self, layer: str, repeats: int) -> list[int]:
        """Return nanoseconds of every one of `repeats` calls of `layer`, in the package's process."""
        times: list[int] = self.process.ask({"variant": self.variant, "layer": layer, "repeats": repeats})
        return times


@dataclass(frozen=True, eq=False)
class PackageBaselines:
    """The baselines that run, the versions their packages tell, and the reasons why the others do not run."""

    baselines: list[PackageBaseline] = field(default_factory=list)
    about: dict[str, Mapping[str, str]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def require_known(packages: Sequence[str]) -> None:
    """Raise SpecError for a package that is not a baseline."""
    if unknown := [p for p in packages if p not in NEEDS]:
        raise SpecError(f"--baseline: unknown {unknown[0]!r}; known: {', '.join(NEEDS)}")


def start(
    stack: ExitStack,
    packages: Sequence[str],
    isa: str,
    threads: int,
    layers: Sequence[str],
    progress: Callable[[str], object],
) -> PackageBaselines:
    """Start what `packages` have for `isa`, every one of `layers` checked; they end with `stack`."""
    require_known(packages)
    baselines, known = PackageBaselines(), caps(isa)
    for package in packages:
        cap = known.get(package, Cap())
        if why := cap.left_out or _missing(package):
            baselines.left_out[package] = why
            continue
        progress(f"preparing {package}")
        try:
            _add(baselines, stack.enter_context(started(package, threads, cap.env)), cap, layers)
        except ToolError as error:
            baselines.left_out[package] = str(error)
    return baselines


def _add(baselines: PackageBaselines, process: BaselineProcess, cap: Cap, layers: Sequence[str]) -> None:
    answer, package = process.ask(list(layers)), process.package
    baselines.about[package] = {**answer["about"], **cap.env}
    baselines.baselines.extend(
        PackageBaseline(f"{package} {v}", kind, v, process) for v, kind in answer["variants"].items()
    )
    baselines.left_out.update({f"{package} {v}": why for v, why in answer["problems"].items()})


def _missing(package: str) -> str:
    missing = [name for name in NEEDS[package] if importlib.util.find_spec(name) is None]
    return f"{' and '.join(missing)} not installed: pip install 'bitsynth[peers]'" if missing else ""
