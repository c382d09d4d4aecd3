"""A job of a quantizer: it reads a folder with a float network and samples, and writes outputs of the quantized one.

    python ADAPTER.py FOLDER ACT_BITS W_BITS OUT

FOLDER has float.onnx and samples.npz (`calibration`, `test`), OUT gets outputs.npy and job.json. Only numpy is needed
here, since each quantizer has an environment of its own.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

Predict = Callable[[Any], Any]
"""Returns the outputs for a batch of inputs."""
BATCH = 100


class NotOfferedError(Exception):
    """The quantizer does not offer these widths."""


def run(packages: tuple[str, ...], settings: str, quantize: Callable[[Path, Any, int, int], Predict]) -> None:
    """Quantize the network of the job, and write its outputs, or why there are none.

    Args:
        packages: The packages whose versions are recorded, the quantizer first.
        settings: What of the quantizer is used.
        quantize: Takes the path of the float network, calibration samples, bits of activations and of weights.
    """
    folder, out = Path(sys.argv[1]), Path(sys.argv[4])
    act_bits, w_bits = int(sys.argv[2]), int(sys.argv[3])
    samples = np.load(folder / "samples.npz")
    facts: dict[str, Any] = {"versions": {name: version(name) for name in packages}, "settings": settings}
    start = time.perf_counter()
    try:
        predict = quantize(folder / "float.onnx", samples["calibration"], act_bits, w_bits)
    except NotOfferedError as why:
        facts["not_offered"] = str(why)
    else:
        facts["seconds"] = time.perf_counter() - start
        test = samples["test"]
        outputs = [np.asarray(predict(test[k : k + BATCH])) for k in range(0, len(test), BATCH)]
        np.save(out / "outputs.npy", np.concatenate(outputs).astype(np.float32))
    (out / "job.json").write_text(json.dumps(facts), encoding="utf-8")


def session(model: Any, **options: Any) -> Predict:
    """Return a function that runs an ONNX model, by its path or its bytes, with ONNX Runtime."""
    import onnxruntime

    given = onnxruntime.SessionOptions()
    given.intra_op_num_threads = 1
    given.log_severity_level = 3
    for name, value in options.items():
        setattr(given, name, value)
    running = onnxruntime.InferenceSession(model, given, providers=["CPUExecutionProvider"])
    name = running.get_inputs()[0].name
    return lambda x: running.run(None, {name: x})[0]


def reader(base: type, name: str, samples: Any) -> Any:
    """Return a calibration reader, a subclass of a package's `base`, that gives one sample after the other."""

    class Reader(base):  # type: ignore[misc]
        """Gives the samples."""

        def __init__(self) -> None:
            self.rewind()

        def rewind(self) -> None:
            self.left = iter(samples)

        def reset_iter(self) -> None:
            self.rewind()

        def get_next(self) -> Any:
            sample = next(self.left, None)
            return None if sample is None else {name: sample[None]}

        def __len__(self) -> int:
            return len(samples)

    return Reader()
