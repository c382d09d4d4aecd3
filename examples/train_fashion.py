"""Train a small residual network of few bits on Fashion-MNIST, and write it as ONNX.

    python examples/train_fashion.py [--act-bits 2] [--w-bits 2] [--epochs 12] [--seed 0] [--data FOLDER] [--out FOLDER]
    python examples/train_fashion.py --evaluate MODEL.onnx [--data FOLDER]

It needs `pip install '.[train]'` in a clone: PyTorch and Brevitas. It writes NAME_qonnx.onnx; NAME_qcdq.onnx if both
widths are more than one bit; NAME.npz with test images, labels and the trainer's logits; and NAME.json: how it was
trained, its accuracy on all 10,000 test images in PyTorch and in the compiled C, and the files' digests. An epoch
takes about 80 s on a core. `--evaluate`, for which `bitsynth[network]` is enough, only runs the last step: the
compiled C of a file on all test images; the result is noted in NAME.json if that file lies in the same folder.
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
    """Train or evaluate a network, as the command line says."""
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
    """Train a network, write its files to the folder `out`, and return its QONNX file."""
    (x, labels), (tests, wanted) = (pictures(options.data, part) for part in ("train", "t10k"))
    out.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore", "fast_hadamard_transform")  # of what Brevitas does not need here
    from fashion import training
    from fashion.network import Network, export

    import_module("onnxoptimizer")  # Brevitas looks for it when all is trained
    training.repeatable(options.seed, options.threads)
    network, history = Network(options.act_bits, options.w_bits), []
    with progress() as shown:
        task = shown.add_task(options.name, total=options.epochs * len(x))
        for loss, right in training.epochs(network, x, labels, options.epochs, partial(shown.advance, task)):
            logits = training.logits(network, scaled(tests))
            history.append({"loss": loss, "train": right, "test": float((logits.argmax(1) == wanted).mean())})
            shown.console.print(
                f"epoch {len(history)}: loss {loss:.3f}, {history[-1]['test']:.2%} of test images correct"
            )
    stem = out / options.name
    files = [*export(network, stem), stem.with_suffix(".npz")]
    shown_tests = scaled(tests[:SHOWN])
    logits = training.logits(network, shown_tests)
    np.savez_compressed(files[-1], picture=shown_tests, labels=wanted[:SHOWN], logits=logits)
    parameters = sum(p.numel() for p in network.parameters())
    stem.with_suffix(".json").write_text(record(options, parameters, history, files), encoding="utf-8")
    return files[0]


def evaluate(model: Path, data: Path) -> None:
    """Print the share of test images that the compiled network classifies correctly, and note it in NAME.json."""
    x, wanted = pictures(data, "t10k")
    network = bitsynth.compile(model)
    with progress() as shown:
        classes = [network(one[None]).argmax() for one in shown.track(scaled(x), description=f"compiled {model.name}")]
    share = float((np.array(classes) == wanted).mean())
    print(f"{model.name}: the compiled C classifies {share:.2%} of {len(x):,} test images correctly")
    notes = model.with_name(model.stem.rpartition("_")[0] + ".json")
    if notes.is_file():
        facts = json.loads(notes.read_text(encoding="utf-8"))
        facts["accuracy"]["compiled"] = share
        notes.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def record(options: Options, parameters: int, history: list[dict[str, float]], files: list[Path]) -> str:
    """Return how a network was trained, its accuracy, and its files, as JSON."""
    facts: dict[str, Any] = {
        "data": "Fashion-MNIST, 60,000 pictures to train with, 10,000 to test",
        **{name: value for name, value in asdict(options).items() if name != "data"},
        "parameters": parameters,
        "made_with": {name: version(name) for name in MADE_WITH},
        "accuracy": {"trainer": history[-1]["test"]},
        "after_epochs": history,
        "sha256": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
    }
    return json.dumps(facts, indent=1) + "\n"


def progress() -> Progress:
    """A bar that counts pictures."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True))


if __name__ == "__main__":
    main()
