"""Suite-wide rules: where `.ci/allowed_skips` is in force, any other skip is a failure."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

ALLOWED = Path(__file__).parent.parent / ".ci" / "allowed_skips"


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
