"""The name that was probably meant, for messages about one that is not known."""

from __future__ import annotations

from collections.abc import Collection

_ALIKE = 0.75  # of one in four letters wrong; below it advice is far-fetched


def nearest(word: str, known: Collection[str], most: int = 1) -> list[str]:
    """Known names that `word` begins, shortest first, or else that it is a slip of."""
    import difflib  # noqa: PLC0415 - only a mistake needs it

    plain = {name.strip("-").casefold(): name for name in known}
    letters = word.strip("-").casefold()
    begun = [name for name in plain if letters and name.startswith(letters)]
    found = sorted(begun, key=len) or difflib.get_close_matches(letters, plain, most, _ALIKE)
    return [plain[name] for name in found[:most]]
