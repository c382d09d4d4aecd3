"""A new user's first commands on a Raspberry Pi, in a system that is emulated."""

import pytest
from board import emulated, trial

pytestmark = [pytest.mark.slow, pytest.mark.toolchains]


@pytest.mark.timeout(1800)
def test_a_new_user_on_a_raspberry_pi(tmp_path):
    if why := emulated.lacking():
        pytest.skip(f"no emulated AArch64 system: {why}")
    if emulated.make(root := tmp_path / "root"):
        pytest.skip("no emulated AArch64 system: Debian's packages are not to be had")
    trial.trial(root, short=True)


def test_the_readme_has_the_commands_that_are_tried():
    assert "pip install '.[network]'" in trial.quick_start()
    assert "bitsynth compile" in trial.quick_start()
    assert "pytest" in trial.test_command()
