"""The tile of a kernel: its rows, columns and passes, the cheapest that registers hold."""
