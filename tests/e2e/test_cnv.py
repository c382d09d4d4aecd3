"""Trained networks with packed bits between their layers give the logits they were published with."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bitsynth.host import features
from bitsynth.isa.load import load

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "cifar10_cnv.py"
NETWORKS = ["cifar10_cnvW1A1", "cifar10_cnvW1A2"]


def run(*args):
    command = [sys.executable, str(SCRIPT), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["avx2", "avx512", "neon"])
def test_logits_are_those_of_the_trained_network(models, isa, skip_lesser):
    skip_lesser(isa)
    native = features.matches(load(isa).table)
    done = run("--models", models, "--isa", isa, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["network"] for row in rows] == NETWORKS
    for row in rows:
        assert (row["images"], row["logits"], row["different"]) == (7, 70, 0)
        times = [row["microseconds"], *(t for _, t in row["layers"])]
        assert len(times) == 12
        assert all(t > 0 for t in times) if native else times == [None] * 12


@pytest.mark.slow
def test_wrong_logits_are_seen(models, tmp_path):
    """With one reference changed, and its checksum, the exit code is 1."""
    for file in models.iterdir():
        os.symlink(file, tmp_path / file.name)
    path = tmp_path / f"{NETWORKS[0]}.npz"
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    arrays["ref_logits"][3, 4] += 1
    path.unlink()
    np.savez(path, **arrays)
    done = run("--models", tmp_path, "--isa", "avx2")
    assert (done.returncode, "differ from SHA256SUMS" in done.stderr) == (2, True)
    sums = (models / "SHA256SUMS").read_text().splitlines()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / "SHA256SUMS").unlink()
    changed = [f"{digest}  {path.name}" if path.name in line else line for line in sums]
    (tmp_path / "SHA256SUMS").write_text("\n".join(changed))
    done = run("--models", tmp_path, "--isa", "avx2")
    assert (done.returncode, "1 differ" in done.stdout) == (1, True)


def test_missing_models_are_reported():
    done = run("--models", "/nowhere/at/all")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("cifar10_cnv.py: cannot read /nowhere/at/all/SHA256SUMS")
