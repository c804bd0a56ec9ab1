"""Writes `docs/openapi.json`, the snapshot of the API's description; `--check` only compares.

A change of the API shows in it, so that nobody changes the API without seeing it. The version is
left out: it says nothing about the API.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SNAPSHOT = ROOT / "docs" / "openapi.json"
RENEW = "python tools/make_openapi.py"


def snapshot_text() -> str:
    """The document as the repository keeps it."""
    sys.path.insert(0, str(ROOT / "src"))
    from octavo.server.app import ROUTES  # noqa: PLC0415 - the path is set up just above
    from octavo.server.openapi import openapi_document  # noqa: PLC0415

    document = openapi_document(ROUTES)
    document["info"]["version"] = "0"
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    """Write it, or say with 1 that it is old."""
    text = snapshot_text()
    if "--check" not in sys.argv[1:]:
        SNAPSHOT.write_text(text, encoding="utf-8")
        print(f"openapi: {SNAPSHOT.relative_to(ROOT)} written")
        return 0
    is_new = SNAPSHOT.is_file() and SNAPSHOT.read_text(encoding="utf-8") == text
    print("openapi: the snapshot is up to date" if is_new else f"openapi: run `{RENEW}`")
    return 0 if is_new else 1


if __name__ == "__main__":
    sys.exit(main())
