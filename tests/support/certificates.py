"""Certificates that sign themselves, for servers of the loopback."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificate(folder: Path, name: str) -> tuple[str, str]:
    """Paths of (certificate, key), valid for 127.0.0.1."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", f"/CN={name}"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return str(certificate), str(key)
