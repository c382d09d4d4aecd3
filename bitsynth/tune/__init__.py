"""Tunes schedules by measuring: a study of trials, and workers that measure them."""
