"""Folders of tiny models that make vectors, made once per session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.support.tiny_encoders import as_sentence_transformer, make_encoder, save_encoder

MakeFolder = Callable[[str], Path]


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> MakeFolder:
    """Name of a case in `tiny_encoders` -> its folder. `bert` pools as sentence-transformers."""
    root, made = tmp_path_factory.mktemp("folders"), dict[str, Path]()
    torch.set_num_threads(1)

    def make(name: str) -> Path:
        if name not in made:
            made[name] = save_encoder(make_encoder(name), root / name)
            if name == "bert":
                as_sentence_transformer(made[name], "pooling_mode_mean_tokens")
        return made[name]

    return make
