"""A new user's first commands on a Raspberry Pi, in a system that is emulated."""

import subprocess
import sys

import pytest
from board import emulated, trial


def system(tmp_path, *options):
    """A folder with an emulated system, made with these options; skips if there can be none."""
    if why := emulated.lacking():
        pytest.skip(f"no emulated system: {why}")
    command = [sys.executable, emulated.__file__, *options, str(root := tmp_path / "root")]
    if subprocess.run(command, check=False).returncode:
        pytest.skip("no emulated system: no namespace of its own, or Debian's packages are not to be had")
    return root


@pytest.mark.slow
@pytest.mark.toolchains
@pytest.mark.timeout(1800)
def test_a_new_user_on_a_raspberry_pi(tmp_path):
    trial.trial(system(tmp_path), short=True)


@pytest.mark.slow
@pytest.mark.toolchains
@pytest.mark.timeout(1800)
def test_a_32_bit_raspberry_pi(tmp_path):
    trial.trial_in_32_bits(system(tmp_path, emulated.ARM32))


def test_the_readme_has_the_commands_that_are_tried():
    assert "pip install '.[network]'" in trial.quick_start()
    assert "bitsynth compile" in trial.quick_start()
    assert "pytest" in trial.test_command()
