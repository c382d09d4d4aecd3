"""Kinds of proved artifacts: kernels and programs that are kept as a JSON file each, with a certificate.

An artifact is a program for one instruction set with a claim that was proved. A kind says where its files lie, what
a file holds, and how a record is proved again; finding, reading, accepting and storing are the same for all kinds.

    Given:   ELEMENTWISE, and the name greatest_avx2
    Result:  ELEMENTWISE.find_named(..)   kernels_cache/avx2/elementwise/greatest_avx2.json
             ELEMENTWISE.read(path)  the record as anybody may have written it; only its digest is checked
             ELEMENTWISE.load(path)  the proof: the record was accepted by the checker

`bitsynth/store/kinds.py` is the table of kinds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Generic, Literal, TypeVar

from bitsynth import paths
from bitsynth.errors import BitsynthError, SpecError
from bitsynth.files import hold_lock, unwritable
from bitsynth.isa.load import names as isa_names
from bitsynth.store import files
from bitsynth.store.files import StoredRecord

KindName = Literal["product", "depthwise", "elementwise"]
"""The names of kinds, as certificates of networks have them."""
R = TypeVar("R", bound=StoredRecord)
"""The record of a kind: the text of an artifact, which anybody may have written."""
P = TypeVar("P")
"""The proved artifact of a kind."""


class ArtifactKind(ABC, Generic[R, P]):
    """A kind of artifact: its files in the user's folder of kernels, which hide files in the shipped one.

    Attributes:
        name: The kind in the certificates of networks.
        noun: An artifact of this kind in messages.
        record: The type of a file's content.
        format: The version of `record` that is read.
        pattern: The files of this kind in a folder of kernels, after the folder of an instruction set.
        remedy: The advice for a file that is refused.
        differs: The reason of refusal if an accepted record does not say the same again or lies elsewhere.
    """

    name: KindName
    noun: str
    record: type[R]
    format: int
    pattern: str
    remedy: str
    differs = "its name, its cost or what follows from it differ"

    def __init__(self) -> None:
        self._accepted: dict[Path, P] = {}

    @abstractmethod
    def accept(self, record: R) -> P:
        """Return the artifact of a record, proved by the checker and by what the record says Z3 proved.

        Refuted or SpecError if it is not proved by these.
        """

    @abstractmethod
    def record_of(self, proved: P) -> R:
        """Return the record of a proved artifact, with its digest."""

    @abstractmethod
    def place_of(self, record: R) -> Path:
        """Return the place of a record's file in a folder of kernels: SET/.../NAME.json."""

    @abstractmethod
    def find_named(self, name: str, variant: str | None = None) -> Path | None:
        """Return the file of the artifact called `name`; None if the name may be of another kind.

        SpecError if the name can only be of this kind and no file has it. `variant` chooses among several of one name.
        """

    def every(self, isa: str = "*") -> Iterator[Path]:
        """Yield the stored files, of all instruction sets or one; the user's hide shipped ones of the same place."""
        return files.every(f"{isa}/{self.pattern}")

    def read(self, path: Path) -> R:
        """Return the record in the file `path`, its digest checked; SpecError names the fault and the remedy."""
        return files.read(path, self.record, self.noun, self.format, self.remedy)

    def load(self, path: Path) -> P:
        """Return the artifact in `path`, accepted once a process; SpecError says what in the record is wrong."""
        if path not in self._accepted:
            self._accepted[path] = self._load(path)
        return self._accepted[path]

    def load_named(self, name: str, variant: str | None = None) -> P | None:
        """Return the artifact called `name`, accepted; None if no artifact of this kind can be meant."""
        path = self.find_named(name, variant)
        return self.load(path) if path else None

    def forget(self) -> None:
        """Accept each file anew when it is loaded next."""
        self._accepted.clear()

    def store(self, proved: P, folder: Path | None = None) -> Path:
        """Write the artifact to `folder` of kernels, the user's if None: readers see the old file or the new one.

        Files that it supersedes go. One process at a time, or two would remove each other's.
        """
        record = self.record_of(proved)
        place = self.place_of(record)
        path = (folder or paths.user_kernels()) / place
        lock = paths.user_kernels() / "locks" / f"{place.parts[0]}.lock"
        with hold_lock(lock, partial(unwritable, path)):
            files.write(path, record)
            for old in self.find_superseded(path):
                old.unlink(missing_ok=True)
        self.forget()
        return path

    def find_superseded(self, path: Path) -> Collection[Path]:
        """Return the files that the artifact in `path` replaces, besides a file of the same name."""
        return ()

    def reason(self, record: R, error: BitsynthError) -> str:
        """Return why a record is refused."""
        return str(error)

    def is_at(self, path: Path, record: R) -> bool:
        """Return whether a record may lie at `path`."""
        return path.stem == record.name

    def _load(self, path: Path) -> P:
        record = self.read(path)
        isa_names()  # A faulty BITSYNTH_ISA is no fault of the artifact.
        try:
            proved = self.accept(record)
            if record != self.record_of(proved) or not self.is_at(path, record):
                raise SpecError(self.differs)
        except BitsynthError as error:
            why = self.reason(record, error)
            raise SpecError(f"{path}: the certificate does not check: {why}; {self.remedy}") from None
        return proved
