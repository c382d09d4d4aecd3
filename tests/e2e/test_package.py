"""The sdist and the wheel: what is in them, and that they work in an empty environment."""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from bitsynth import __version__

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """A folder with the sdist, the wheel that is made from it, and in `direct` the wheel from this checkout."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("dist")
    for options in ([folder], [folder / "direct", "--wheel"]):
        subprocess.run([sys.executable, "-m", "build", ROOT, "-o", *options], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def wheel(dist):
    (path,) = dist.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def sdist(dist):
    (path,) = dist.glob("*.tar.gz")
    return path


def checksums(path):
    with zipfile.ZipFile(path) as archive:
        return {info.filename: info.CRC for info in archive.infolist()}


def tracked(*folders):
    """The files of the checkout that git knows, or all of them where there is no git."""
    done = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=False)
    if not done.returncode:
        return set(done.stdout.splitlines())
    found = (p for folder in folders for p in (ROOT / folder).rglob("*") if p.is_file())
    return {p.relative_to(ROOT).as_posix() for p in found if "__pycache__" not in p.parts}


def test_the_wheel_is_for_every_processor(wheel):
    assert wheel.name == f"bitsynth-{__version__}-py3-none-any.whl"
    assert not [name for name in checksums(wheel) if re.search(r"\.(so|o|pyd|pyc)$", name)]


def test_the_wheel_has_all_that_the_package_reads(wheel):
    """Python, templates and C of the package; instruction sets, kernels and tuned schedules in `_data`."""
    data = {f"bitsynth/_data/{name}" for name in tracked("isa_specs", "kernels_cache", "tuned")}
    wanted = tracked("bitsynth") | data
    assert {f"bitsynth/{n}" for n in ("emit/templates/layer.c.j2", "runtime/bs_layer.c", "py.typed")} <= wanted
    assert {f"bitsynth/_data/{n}" for n in ("isa_specs/avx2/isa.toml", "isa_specs/architectures.toml")} <= wanted
    assert {name for name in checksums(wheel) if ".dist-info/" not in name} == wanted


def test_the_wheel_of_the_sdist_is_that_of_the_checkout(dist, wheel):
    (direct,) = (dist / "direct").glob("*.whl")
    assert checksums(direct) == checksums(wheel)


def test_the_sdist_has_what_its_tests_need(sdist):
    with tarfile.open(sdist) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    assert tracked("bitsynth", "isa_specs", "kernels_cache", "tuned", "tests", "docs", "examples", ".ci") <= found
    assert {"README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml"} <= found


def test_it_is_installed_and_used_in_an_empty_environment(sdist):
    """From the sdist, of which pip makes the wheel once more."""
    done = subprocess.run([ROOT / ".ci" / "installed", sdist], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "proved   11 of 11 steps, for every input" in done.stdout
