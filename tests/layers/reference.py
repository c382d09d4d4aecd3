"""What layers must give: plain integer convolutions."""

from __future__ import annotations

import numpy as np


def convolution(x, w, *, stride, padding, dilation, groups):
    """int64 sums of values `x` (N, H, W, C) and `w` (OC, C / groups, KH, KW); padding is 0."""
    top, left, bottom, right = padding
    x = np.pad(x.astype(np.int64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    n, h, wide, _ = x.shape
    oc, ic, kh, kw = w.shape
    oh = (h - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    ow = (wide - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    out = np.zeros((n, oh, ow, groups, oc // groups), np.int64)
    parts = w.astype(np.int64).reshape(groups, oc // groups, ic, kh, kw)
    for ky in range(kh):
        for kx in range(kw):
            y0, x0 = ky * dilation[0], kx * dilation[1]
            seen = x[:, y0 : y0 + stride[0] * (oh - 1) + 1 : stride[0], x0 : x0 + stride[1] * (ow - 1) + 1 : stride[1]]
            seen = seen.reshape(n, oh, ow, groups, ic)
            out += np.einsum("nyxgi,goi->nyxgo", seen, parts[..., ky, kx])
    return out.reshape(n, oh, ow, oc)
