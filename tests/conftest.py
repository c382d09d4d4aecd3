"""Suite-wide rules of what may be skipped.

Where `.ci/allowed_skips` is in force, any other skip is a failure. BITSYNTH_REQUIRE_ISA
names instruction sets, a comma between them, whose tests must run.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bitsynth.isa import load

ALLOWED = Path(__file__).parent.parent / ".ci" / "allowed_skips"
REQUIRED = [name.strip() for name in os.environ.get("BITSYNTH_REQUIRE_ISA", "").split(",") if name.strip()]


def pytest_configure(config: pytest.Config) -> None:
    """Refuse names that are no instruction sets; make the folder of kernels that `solved` shares between workers."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="bitsynth-solved-")
        config.add_cleanup(folder.cleanup)
        os.environ["BITSYNTH_TEST_SOLVED"] = folder.name
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each of hundreds of processes compiles everything again
    if unknown := sorted(set(REQUIRED) - set(load.names())):
        raise pytest.UsageError(f"BITSYNTH_REQUIRE_ISA: unknown {unknown}; known: {', '.join(load.names())}")


@pytest.fixture(scope="session")
def skip_isa() -> Callable[[str, str], None]:
    """`skip_isa(name, why)`: skip what needs the instruction set, or fail where it is required."""

    def skip(name: str, why: str) -> None:
        if name in REQUIRED:
            pytest.fail(f"{why}, and BITSYNTH_REQUIRE_ISA has {name}")
        pytest.skip(why)

    return skip


@pytest.fixture(scope="session")
def models() -> Path:
    """The folder of trained networks; skips where there is none, or fails with BITSYNTH_REQUIRE_MODELS=1."""
    folder = Path(os.environ.get("BITSYNTH_MODELS") or Path(__file__).resolve().parents[2] / "shared" / "models")
    if not (folder / "SHA256SUMS").is_file():
        reason = f"no trained networks in {folder}"
        if os.environ.get("BITSYNTH_REQUIRE_MODELS") == "1":
            pytest.fail(f"{reason}, and BITSYNTH_REQUIRE_MODELS=1")
        pytest.skip(reason)
    return folder


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI, fail on a skip whose reason no line of `.ci/allowed_skips` matches."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") != "true" or reporter is None or session.exitstatus not in (0, 5):
        return
    patterns = [line for line in ALLOWED.read_text().splitlines() if line and not line.startswith("#")]
    for report in reporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(re.search(p, reason) for p in patterns):
            reporter.write_line(f"skip not allowed: {report.nodeid}: {reason}", red=True)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
