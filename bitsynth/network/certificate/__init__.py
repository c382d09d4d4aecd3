"""Certificates of networks: claims about a library, written next to it, and a checker that anyone can run."""

from bitsynth.network.certificate.write import certificate, certificate_files, digest

__all__ = ["certificate", "certificate_files", "digest"]
