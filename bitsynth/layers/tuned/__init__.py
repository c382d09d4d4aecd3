"""Tuned schedules: the records that `bitsynth tune` stores, and which of them a layer takes."""
