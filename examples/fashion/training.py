"""Training of a network on Fashion-MNIST in PyTorch; the same seed and number of threads give the same weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

BATCH, RATE, DECAY = 128, 2e-3, 1e-4


def repeatable(seed: int, threads: int) -> None:
    """Let everything that follows depend on the seed and the number of threads alone."""
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)


def epochs(
    network: nn.Module, pictures: NDArray[np.uint8], labels: NDArray[np.uint8], count: int, step: Callable[[int], Any]
) -> Iterator[tuple[float, float]]:
    """Train `network` on pictures (N, 28, 28) and labels, half of the pictures mirrored.

    Each of `count` epochs yields its mean loss and the share of pictures classified correctly; `step` is called with
    the number of pictures in each batch.
    """
    network.to(memory_format=torch.channels_last)
    x, wanted = torch.tensor(pictures)[:, None], torch.tensor(labels).long()
    optimizer = torch.optim.AdamW(network.parameters(), RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=count * -(-len(x) // BATCH))
    for _ in range(count):
        network.train()
        loss = right = 0.0
        for chosen in torch.randperm(len(x)).split(BATCH):
            scores = network(_mirrored(x[chosen]))
            lost = functional.cross_entropy(scores, wanted[chosen])
            optimizer.zero_grad()
            lost.backward()
            optimizer.step()
            schedule.step()
            loss += lost.item() * len(chosen)
            right += (scores.argmax(1) == wanted[chosen]).sum().item()
            step(len(chosen))
        yield loss / len(x), right / len(x)


def _mirrored(x: Tensor) -> Tensor:
    chosen = torch.rand(len(x), 1, 1, 1) < 0.5
    return torch.where(chosen, x.flip(-1), x).float().div_(255).to(memory_format=torch.channels_last)


def logits(network: nn.Module, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The logits of pictures (N, 1, 28, 28) as PyTorch computes them."""
    network.eval()
    with torch.no_grad():
        made = [network(part) for part in torch.from_numpy(x).split(500)]
    return np.asarray(torch.cat(made))
