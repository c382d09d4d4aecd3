"""A network of 2-bit activations and 1-bit weights: two convolutions and a dense layer, exact to the bit."""

import numpy as np

import bitsynth

rng = np.random.default_rng(0)
IMAGE = (12, 12)


def weights(*shape):
    """Values of one bipolar bit, as training would have made them."""
    return rng.choice([-1, 1], shape)


def thresholds(channels, spread):
    """Three thresholds a channel: sums become codes 0 to 3."""
    return np.sort(rng.integers(-spread, spread, (channels, 3)))


def plain_convolution(x, w):
    """int64 sums of a 3 x 3 window, padded with zeros."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    return np.einsum("nhwcij,ocij->nhwo", windows, w)


w1, w2, w3 = weights(64, 16, 3, 3), weights(64, 64, 3, 3), weights(10, 12 * 12 * 64)
t1, t2 = thresholds(64, 100), thresholds(64, 300)

conv1 = bitsynth.Conv2d(w1, 2, 1, padding=1, image=IMAGE, epilogue=bitsynth.Thresholds(t1), out_layout="packed")
conv2 = bitsynth.Conv2d(
    w2, 2, 1, padding=1, image=IMAGE, epilogue=bitsynth.Thresholds(t2), layout="packed", out_layout="NHWC"
)
dense = bitsynth.Dense(w3, 2, 1)

x = rng.integers(0, 4, (1, *IMAGE, 16))
scores = dense(conv2(conv1(x)).reshape(1, -1))

codes = (plain_convolution(x, w1)[..., None] > t1).sum(-1)
codes = (plain_convolution(codes, w2)[..., None] > t2).sum(-1)
assert (scores == codes.reshape(1, -1) @ w3.T).all()
print(conv1.explain())
print("scores", scores[0])
