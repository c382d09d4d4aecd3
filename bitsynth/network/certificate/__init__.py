"""Certificates of networks: what is claimed of a library, written beside it, and the checker that anyone can run."""

from bitsynth.network.certificate.write import certificate, certificate_files, digest

__all__ = ["certificate", "certificate_files", "digest"]
