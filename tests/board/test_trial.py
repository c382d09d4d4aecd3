"""A new user's first commands on a Raspberry Pi, in a system that is emulated."""

import subprocess
import sys

import pytest
from board import emulated, trial


@pytest.mark.slow
@pytest.mark.toolchains
@pytest.mark.timeout(1800)
def test_a_new_user_on_a_raspberry_pi(tmp_path):
    if why := emulated.lacking():
        pytest.skip(f"no emulated AArch64 system: {why}")
    made = subprocess.run([sys.executable, emulated.__file__, str(root := tmp_path / "root")], check=False)
    if made.returncode:
        pytest.skip("no emulated AArch64 system: no namespace of its own, or Debian's packages are not to be had")
    trial.trial(root, short=True)


def test_the_readme_has_the_commands_that_are_tried():
    assert "pip install '.[network]'" in trial.quick_start()
    assert "bitsynth compile" in trial.quick_start()
    assert "pytest" in trial.test_command()
