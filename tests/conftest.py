"""Suite-wide rules of what may be skipped.

BITSYNTH_ALLOWED_SKIPS names files of regular expressions, a colon between them: a skip for a reason
that none of them matches is a failure. BITSYNTH_REQUIRE_ISA names instruction sets, a comma between
them, whose tests must run.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from bitsynth.cli import main
from bitsynth.errors import ToolError
from bitsynth.host import features
from bitsynth.isa import load

ALLOWED = [Path(name).absolute() for name in os.environ.get("BITSYNTH_ALLOWED_SKIPS", "").split(os.pathsep) if name]
FOREIGN = re.compile(r"code needs an? \w+ processor; this one is")
REQUIRED = [name.strip() for name in os.environ.get("BITSYNTH_REQUIRE_ISA", "").split(",") if name.strip()]

WHOLE_SUITE, MAX_CASES = 5000, 2
"""Tests from which on a run is one of the whole suite, and the cases of a test that its fast half has."""


def pytest_configure(config: pytest.Config) -> None:
    """Refuse names that are no instruction sets; make the folder of solved kernels; have compilers find `include`."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell: children would ignore it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()  # Nothing of the thousands of cases that are collected is garbage: looking for some takes seconds.
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="bitsynth-solved-")
        config.add_cleanup(folder.cleanup)
        os.environ["BITSYNTH_TEST_SOLVED"] = folder.name
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each of hundreds of processes compiles everything again
        where = [str(Path(__file__).parent / "include"), *filter(None, [os.environ.get("C_INCLUDE_PATH")])]
        os.environ["C_INCLUDE_PATH"] = os.pathsep.join(where)
    settings.register_profile(
        "any machine", max_examples=50, suppress_health_check=[HealthCheck.too_slow], deadline=None
    )
    settings.load_profile("any machine")
    if unknown := sorted(set(REQUIRED) - set(load.names())):
        raise pytest.UsageError(f"BITSYNTH_REQUIRE_ISA: unknown {unknown}; known: {', '.join(load.names())}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave `MAX_CASES` of a test with more cases in the fast run of the whole suite; mark the others slow.

    They are spread over all cases, the first and the last among them: 2 of 50 are 0 and 49. A choice of
    files or tests runs all of its cases.
    """
    if len(items) < WHOLE_SUITE:
        return
    cases: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        if not (item.get_closest_marker("slow") or item.get_closest_marker("smoke")):
            cases.setdefault((item.path, getattr(item, "originalname", item.name)), []).append(item)
    for every in cases.values():
        kept = {round(k * (len(every) - 1) / (MAX_CASES - 1)) for k in range(MAX_CASES)}
        for k, item in enumerate(every):
            if len(every) > MAX_CASES and k not in kept:
                item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Look for garbage again, but not among what was collected, and less often: proofs make many objects that stay."""
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """Skip a test whose code is for another architecture than this machine's and has no emulator."""
    try:
        return (yield)
    except ToolError as error:
        if FOREIGN.search(str(error)):
            pytest.skip(str(error))
        raise


@pytest.fixture(scope="session")
def skip_isa() -> Callable[[str, str], None]:
    """`skip_isa(name, why)`: skip what needs the instruction set, or fail where it is required."""

    def skip(name: str, why: str) -> None:
        if name in REQUIRED:
            pytest.fail(f"{why}, and BITSYNTH_REQUIRE_ISA has {name}")
        pytest.skip(why)

    return skip


@pytest.fixture
def skip_lesser(skip_isa: Callable[[str, str], None]) -> Callable[[str], None]:
    """`skip_lesser(isa)`: skip where code for `isa` is this architecture's, but not this processor's."""

    def skip(isa: str) -> None:
        table = load.load(isa).table
        if table.arch == features.arch() and not features.matches(table):
            skip_isa(isa, f"{isa} code needs a processor with it; this one lacks it")

    return skip


@pytest.fixture
def ended(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """`ended(code, *argv)`: run a command in this process, which ends with `code`; its output and its messages."""

    def call(code: int, *argv: str) -> tuple[str, str]:
        assert main(list(argv)) == code
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return out, err

    return call


@pytest.fixture
def fails(ended: Callable[..., tuple[str, str]]) -> Callable[..., str]:
    """`fails(code, *argv)`: run a command that must fail with `code`; its one message."""

    def call(code: int, *argv: str) -> str:
        out, err = ended(code, *argv)
        assert out == ""
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        return err

    return call


@pytest.fixture(scope="session")
def models() -> Path:
    """The folder of trained networks, BITSYNTH_MODELS or `tests/models`.

    Skips where neither is there, or fails with BITSYNTH_REQUIRE_MODELS=1; a folder that is named must be one.
    """
    return _folder("BITSYNTH_MODELS", Path(__file__).parent / "models")


@pytest.fixture(scope="session")
def network_models() -> Path:
    """The folder of trained networks as graphs, BITSYNTH_NETWORK_MODELS or beside that of `models`; as that."""
    others = os.environ.get("BITSYNTH_MODELS") or Path(__file__).parent / "models"
    return _folder("BITSYNTH_NETWORK_MODELS", Path(others).absolute().parent / "network_models")


def _folder(variable: str, otherwise: Path) -> Path:
    named = os.environ.get(variable)
    folder = Path(named or otherwise)
    if not (folder / "SHA256SUMS").is_file():
        if named or os.environ.get("BITSYNTH_REQUIRE_MODELS") == "1":
            pytest.fail(f"no trained networks in {folder}: name their folder in {variable}")
        pytest.skip(f"{variable} names no folder of trained networks")
    return folder


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail on a skip whose reason no line of BITSYNTH_ALLOWED_SKIPS matches."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not ALLOWED or reporter is None or session.exitstatus not in (0, 5):
        return
    lines = [line for path in ALLOWED for line in path.read_text(encoding="utf-8").splitlines()]
    patterns = [line for line in lines if line and not line.startswith("#")]
    for report in reporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(re.search(p, reason) for p in patterns):
            reporter.write_line(f"skip not allowed: {report.nodeid}: {reason}", red=True)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
