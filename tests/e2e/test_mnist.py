"""The trained networks give their published accuracy, and every accumulator is numpy's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bitsynth.host import features
from bitsynth.isa.load import load

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "mnist_tfc.py"
NATIVE = "avx2" if features.matches(load("avx2").table) else "neon"
FULL = {"TFC_1W2A": 94.74, "TFC_1W1A": 92.96}


def run(*args, env=None):
    command = [sys.executable, str(SCRIPT), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})})


def evaluated(models, *args):
    done = run("--models", models, "--json", *args)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["network"]: row for row in json.loads(done.stdout)["rows"]}
    assert list(rows) == list(FULL)
    for row in rows.values():
        assert row["accumulators_different"] == 0
        assert row["accumulators"] == row["images"] * (64 + 64 + 64 + 10)
    return rows


def test_500_images(models):
    rows = evaluated(models, "--isa", NATIVE, "--images", 500)
    assert {n: row["images"] for n, row in rows.items()} == dict.fromkeys(FULL, 500)
    assert all(abs(row["accuracy_percent"] - FULL[n]) < 3 for n, row in rows.items())


@pytest.mark.slow
def test_all_images_are_classified_as_by_the_model(models):
    rows = evaluated(models, "--isa", NATIVE)
    assert {n: round(row["accuracy_percent"], 2) for n, row in rows.items()} == FULL


@pytest.mark.slow
def test_200_images_under_the_emulator(models):
    rows = evaluated(models, "--isa", "neon", "--images", 200)
    if features.arch() != "aarch64":
        assert all("emulated" in row["runs"] for row in rows.values())


def test_missing_models_are_reported():
    done = run("--models", "/nowhere/at/all")
    assert done.returncode == 2
    assert done.stderr.startswith("mnist_tfc.py: cannot read /nowhere/at/all/SHA256SUMS")
    assert done.stderr.count("\n") == 1


def test_damaged_models_are_refused(models, tmp_path):
    for file in models.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    with (tmp_path / "TFC_1W1A.onnx").open("ab") as file:
        file.write(b"\0")
    done = run("--models", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "TFC_1W1A.onnx differ from SHA256SUMS" in done.stderr


@pytest.mark.parametrize("images", [0, 10_001])
def test_no_such_sample(images):
    done = run("--images", images)
    assert done.returncode == 2
    assert "--images must be from 1 to 10000" in done.stderr
