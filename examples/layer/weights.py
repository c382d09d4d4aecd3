"""Weights of a convolution, 16 to 32 channels, and an epilogue that gives floats: what training would have made."""

import numpy as np

rng = np.random.default_rng(0)
weight = rng.choice([-1, 1], (32, 16, 3, 3))  # OC, IC, KH, KW: values of one bipolar bit
np.savez("conv.npz", weight=weight, scale=np.float32(0.05), bias=np.zeros(32, np.float32))
