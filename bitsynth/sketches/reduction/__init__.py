"""The way from narrow lanes to the int32 tile: moves, paths of widening, and the write-back."""
