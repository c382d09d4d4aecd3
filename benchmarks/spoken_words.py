"""The ten words of the keyword spotting network, spoken by a synthesizer: `pip install espeakng-loader`.

Voices, speed, pitch, place in the second of sound, loudness and noise are drawn with a fixed seed. Spectra are as in
MLPerf Tiny: 49 windows of 30 ms, a step of 20 ms, 40 mel bands from 20 to 4,000 Hz, the first ten numbers of their DCT.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

WORDS = ("down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes")
"""In the order of the network's classes."""
_VOICES = ("en", "en-us", "gmw/en-GB-x-rp", "gmw/en-GB-scotland", "gmw/en-US-nyc", "gmw/en-GB-x-gbclan", "gmw/en-029")
_SPEAKERS = ("", "+m1", "+m3", "+m7", "+f2", "+f3", "+f5", "+klatt2", "+steph")
RATE = 16_000
"""Numbers of sound in a second."""
_WINDOW, _STEP, _WINDOWS, _FFT = 480, 320, 49, 512
_BANDS, _LOW, _HIGH, _NUMBERS = 40, 20.0, 4000.0, 10
_SPEED, _PITCH = 1, 3
"""Parameters of the synthesizer."""
_RETRIEVE, _POSITION_CHARACTER, _UTF8 = 1, 1, 1


def spectra(count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return spectra (count, 1, 49, 10) of spoken words, and their classes."""
    say = _synthesizer()
    rng, bands = np.random.default_rng(0), _bands()
    classes = rng.permutation(np.arange(count) % len(WORDS))
    return np.stack([_spectrum(_second(say, WORDS[k], rng), bands) for k in classes])[:, None], classes


def seconds(count: int, rng: np.random.Generator) -> Iterator[NDArray[np.float32]]:
    """Yield seconds of sound at 16 kHz, a word with pauses before and behind it in each."""
    say = _synthesizer()
    for _ in range(count):
        yield _second(say, WORDS[rng.integers(len(WORDS))], rng)


@cache
def _synthesizer() -> Callable[[str, str, int, int], NDArray[np.float32]]:
    """Return a function of word, voice, speed and pitch that returns sound at 16 kHz.

    The library waits forever if it is initialized twice.
    """
    import espeakng_loader

    library = ctypes.CDLL(espeakng_loader.get_library_path())
    rate = library.espeak_Initialize(_RETRIEVE, 0, espeakng_loader.get_data_path().encode(), 0)
    parts: list[NDArray[np.int16]] = []

    def keep(sound: Any, count: int, _: object) -> int:
        if sound and count:
            parts.append(np.ctypeslib.as_array(sound, (count,)).copy())
        return 0

    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)(keep)

    def say(word: str, voice: str, speed: int, pitch: int) -> NDArray[np.float32]:
        library.espeak_SetSynthCallback(callback)
        parts.clear()
        if library.espeak_SetVoiceByName(voice.encode()):
            raise ValueError(f"the synthesizer has no voice {voice}")
        library.espeak_SetParameter(_SPEED, speed, 0)
        library.espeak_SetParameter(_PITCH, pitch, 0)
        library.espeak_ng_SetRandSeed(1)  # It is the time of day otherwise: noise of the voices would differ.
        text = word.encode()
        library.espeak_Synth(text, len(text) + 1, 0, _POSITION_CHARACTER, 0, _UTF8, None, None)
        library.espeak_Synchronize()
        return _resampled(np.concatenate(parts).astype(np.float32), rate)

    return say


def _resampled(x: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
    """Return sound at 16 kHz, by its Fourier transform."""
    count = len(x) * RATE // rate
    spectrum = np.fft.rfft(x)[: count // 2 + 1]
    return np.asarray(np.fft.irfft(spectrum, count) * (count / len(x)), np.float32)


def _second(say: Callable[[str, str, int, int], NDArray[np.float32]], word: str, rng: Any) -> NDArray[np.float32]:
    """Return a second of sound with the word, its greatest number 1, and noise."""
    voice = rng.choice(_VOICES) + rng.choice(_SPEAKERS)
    sound = say(word, voice, int(rng.integers(120, 190)), int(rng.integers(25, 80)))[:RATE]
    second = np.zeros(RATE, np.float32)
    begin = int((RATE - len(sound)) * rng.uniform(0.3, 0.7))
    second[begin : begin + len(sound)] = sound / np.abs(sound).max()
    noise = 10 ** rng.uniform(-3.0, -1.7) * rng.standard_normal(RATE)
    mixed = second + noise
    return np.asarray(mixed / np.abs(mixed).max(), np.float32)


def _bands() -> NDArray[np.float64]:
    """Return the weight of each frequency in each mel band."""

    def mel(hertz: Any) -> Any:
        return 1127.0 * np.log1p(hertz / 700.0)

    frequencies = mel(np.linspace(0, RATE / 2, _FFT // 2 + 1)[1:])[:, None]
    edges = np.linspace(mel(_LOW), mel(_HIGH), _BANDS + 2)
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    weights = np.minimum((frequencies - low) / (middle - low), (high - frequencies) / (high - middle))
    return np.vstack([np.zeros(_BANDS), np.maximum(weights, 0)])


def _spectrum(x: NDArray[np.float32], bands: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the mel cepstrum (49, 10) of a second of sound."""
    windows = np.lib.stride_tricks.sliding_window_view(x, _WINDOW)[::_STEP][:_WINDOWS]
    shape = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_WINDOW) / _WINDOW)
    loudness = np.log(np.abs(np.fft.rfft(windows * shape, _FFT)) @ bands + 1e-6)
    angles = np.pi * np.outer(np.arange(_BANDS) + 0.5, np.arange(_NUMBERS)) / _BANDS
    return np.asarray(loudness @ (2 * np.cos(angles)) / np.sqrt(2 * _BANDS), np.float32)
