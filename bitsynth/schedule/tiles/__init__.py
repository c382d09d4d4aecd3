"""The tile of a kernel: its rows, columns and passes, the cheapest that registers hold.

`k_in_lanes` chooses tiles of popcount kernels, `n_in_lanes` tiles of the other methods among candidates of `shapes`.
`lane_steps` writes the programs of their steps, and `in_words` the scalar pass of a last row.
"""
