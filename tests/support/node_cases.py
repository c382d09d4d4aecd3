"""The node tests of the onnx package: which of them are refused, and which are quantized."""

from __future__ import annotations

import re

REFUSED = {
    r"FLOAT[468]|float4|e\dm\d|e8m0": "floats of 4 to 8 bits",
    r"training|dropout_default_mask": "training",
    r"with_argmax": "the indices of a pool",
    r"resize_.*(antialias|cubic|tf_crop)": "resizing but by nearest elements and on lines between them",
    r"resize_downsample_scales_linear_align_corners": "corners of sizes before they are cut, as ONNX Runtime has not",
    r"_pow(_|$)": "powers that are not known as the graph is read",
    r"identity_(opt|sequence)": "values that are no tensors",
    r"empty_set|zero_size|allowzero_reordered|tri[lu]_zero|shape_zero": "tensors without elements",
    r"start_greater_than_end|start_out_of_bounds|conv_with_state_kernel_size_one_expanded": "tensors without elements",
    r"center_crop_pad_.*expanded": "padding that is computed at run time",
    r"_equal((_cpu)?$|_bcast|_string|_uint)|(greater|less)(_equal)?_uint": "comparisons of integers at run time",
    r"flexattention_causal_mask": "choices of infinities",
    r"attention_.*(mask_bool|boolmask|diff_heads_mask|fullymasked|mode3|composition)": "choices of infinities",
    r"attention_.*(nonpad|padded_kv)|nllloss.*_ii": "comparisons of integers at run time",
    r"nllloss|gathernd.*batch_dim": "places that are computed at run time, or by batch",
    r"scatter.*(_add|_multiply|_max|_min|reduction|duplicate)": "sums and products at places",
    r"window.*_expanded": "ranges that are computed at run time",
    r"test_log(_example)?$|(logsoftmax|reduce_log_sum_).*expanded": "logarithms that are not of constants",
}
"""By patterns of their names: forms of operators that are not compiled."""
QUANTIZED = re.compile(r"quantizelinear|qlinear|convinteger|matmulinteger|cast.*U?INT[24]")
SMALL_FLOATS = re.compile(r"FLOAT[468]|float4|e[45]m")
