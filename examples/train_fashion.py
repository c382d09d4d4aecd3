"""Train a small residual network of few bits on Fashion-MNIST, and write it as ONNX.

    python examples/train_fashion.py [--act-bits 2] [--w-bits 2] [--epochs 12] [--seed 0] [--data FOLDER] [--out FOLDER]
    python examples/train_fashion.py --evaluate MODEL.onnx [--data FOLDER]

It needs `pip install 'bitsynth[train]'`: PyTorch and Brevitas. Written are NAME_qonnx.onnx, NAME_qcdq.onnx where both
widths are more than one bit, NAME.npz with test pictures, labels and the trainer's logits, and NAME.json: how it was
trained, its accuracy on all 10,000 test pictures, as PyTorch computes them and as the compiled C does, and the files'
digests. An epoch takes about 80 s on a core. `--evaluate`, for which `bitsynth[network]` is enough, is the last step
alone: the compiled C of a file on all test pictures, noted in NAME.json if that lies beside it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import warnings
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from fashion.data import INSTALLED, pictures, scaled
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import bitsynth
from bitsynth.errors import BitsynthError

MADE_WITH = ("torch", "brevitas", "onnx")
SHOWN = 48
"""Test pictures that go with a network."""


@dataclass(frozen=True)
class Options:
    """What a network is trained from."""

    data: Path
    act_bits: int
    w_bits: int
    epochs: int
    seed: int
    threads: int

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"fashion_a{self.act_bits}w{self.w_bits}"


def main() -> None:
    """Train a network as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=INSTALLED, metavar="FOLDER", help="the four files of the data")
    for name, what in (("--act-bits", "activations"), ("--w-bits", "weights")):
        parser.add_argument(name, type=int, choices=range(1, 9), default=2, metavar="N", help=f"bits of {what}, 1 to 8")
    parser.add_argument("--epochs", type=int, default=12, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="of PyTorch; sums depend on how many")
    parser.add_argument("--out", type=Path, default=Path(), metavar="FOLDER", help="where the files go")
    parser.add_argument("--evaluate", type=Path, metavar="MODEL.onnx", help="train nothing, evaluate this file")
    given = vars(parser.parse_args())
    out, model = given.pop("out"), given.pop("evaluate")
    try:
        options = Options(**given)
        evaluate(model or train(options, out), options.data)
    except (OSError, ValueError, BitsynthError) as error:
        parser.error(str(error))
    except ImportError as error:
        parser.error(f"{error}; training needs more packages: pip install 'bitsynth[train]'")


def train(options: Options, out: Path) -> Path:
    """The QONNX file of a network that is trained now; its files are written to the folder `out`."""
    (x, labels), (tests, wanted) = (pictures(options.data, part) for part in ("train", "t10k"))
    out.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore", "fast_hadamard_transform")  # of what Brevitas does not need here
    from fashion import training
    from fashion.network import Network, export

    import_module("onnxoptimizer")  # Brevitas looks for it when all is trained
    training.repeatable(options.seed, options.threads)
    network, told = Network(options.act_bits, options.w_bits), []
    with progress() as shown:
        task = shown.add_task(options.name, total=options.epochs * len(x))
        for loss, right in training.epochs(network, x, labels, options.epochs, partial(shown.advance, task)):
            logits = training.logits(network, scaled(tests))
            told.append({"loss": loss, "train": right, "test": float((logits.argmax(1) == wanted).mean())})
            shown.console.print(f"epoch {len(told)}: loss {loss:.3f}, {told[-1]['test']:.2%} of the test pictures")
    stem = out / options.name
    files = [*export(network, stem), stem.with_suffix(".npz")]
    shown_tests = scaled(tests[:SHOWN])
    logits = training.logits(network, shown_tests)
    np.savez_compressed(files[-1], picture=shown_tests, labels=wanted[:SHOWN], logits=logits)
    parameters = sum(p.numel() for p in network.parameters())
    stem.with_suffix(".json").write_text(record(options, parameters, told, files), encoding="utf-8")
    return files[0]


def evaluate(model: Path, data: Path) -> None:
    """Print the share of test pictures that the compiled network tells right, and note it in NAME.json."""
    x, wanted = pictures(data, "t10k")
    network = bitsynth.compile(model)
    with progress() as shown:
        told = [network(one[None]).argmax() for one in shown.track(scaled(x), description=f"compiled {model.name}")]
    share = float((np.array(told) == wanted).mean())
    print(f"{model.name}: the compiled C tells {share:.2%} of {len(x):,} test pictures")
    notes = model.with_name(model.stem.rpartition("_")[0] + ".json")
    if notes.is_file():
        facts = json.loads(notes.read_text(encoding="utf-8"))
        facts["accuracy"]["compiled"] = share
        notes.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def record(options: Options, parameters: int, told: list[dict[str, float]], files: list[Path]) -> str:
    """How a network was trained, what it reaches, and its files, as JSON."""
    facts: dict[str, Any] = {
        "data": "Fashion-MNIST, 60,000 pictures to train with, 10,000 to test",
        **{name: value for name, value in asdict(options).items() if name != "data"},
        "parameters": parameters,
        "made_with": {name: version(name) for name in MADE_WITH},
        "accuracy": {"trainer": told[-1]["test"]},
        "after_epochs": told,
        "sha256": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
    }
    return json.dumps(facts, indent=1) + "\n"


def progress() -> Progress:
    """A bar that counts pictures."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True))


if __name__ == "__main__":
    main()
