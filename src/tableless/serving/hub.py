"""Runs on the Hugging Face hub: `save_pretrained`, `fetch` and `push_to_hub`.

Only the travelling files of a run go up or come down; none of them can hold code. A directory on disk needs no extra.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..data.loading import recorded_data
from ..extras import install_hint
from ..files.whole import write_text
from ..recommender.run_directory import TRAVELLING, RunDirectory, StoredRun
from .facts import model_card


def is_model_id(name: str | os.PathLike[str]) -> bool:
    """Does it look like the id of a model on the hub, `owner/name`?"""
    return isinstance(name, str) and re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name) is not None


def fetch(model_id: str, *, revision: str | None = None) -> Path:
    """The directory of a model of the hub, downloaded unless it is in the cache."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as missing:
        raise FileNotFoundError(
            f"there is no directory {model_id}; if it is a model on the Hugging Face hub: {install_hint('hub')}"
        ) from missing
    try:
        return Path(snapshot_download(model_id, revision=revision, allow_patterns=list(TRAVELLING)))
    except OSError as error:  # something is wrong there, or there is no connection
        reason = str(error).strip().partition("\n")[0]
        raise FileNotFoundError(f"{model_id} is no directory here, and the Hugging Face hub says: {reason}") from error


def save_pretrained(run: StoredRun, facts: Mapping[str, Any], directory: Path) -> None:
    """Write what loading needs and a model card. Paths of the training data on this machine are left out."""
    data = recorded_data(run.config)
    test = None if data.test is None else Path(data.test).name
    config = {**run.config, "data": replace(data, data=Path(data.data).name, data_dir=None, test=test).settings()}
    target = RunDirectory(directory)
    directory.mkdir(parents=True, exist_ok=True)
    if directory.resolve() != run.files.path.resolve():
        target.replace_all_but_config(run.files)
    write_text(directory / "README.md", model_card(facts, config))
    target.write_config(config)


def push_to_hub(
    run: StoredRun,
    facts: Mapping[str, Any],
    repo_id: str,
    *,
    private: bool | None = None,
    commit_message: str | None = None,
) -> str:
    """Upload what `save_pretrained` writes, with the token that huggingface_hub finds; returns the address.

    A table for each user comes with the list of its users' ids: think of `private`.
    """
    try:
        from huggingface_hub import HfApi
    except ImportError as missing:
        raise ImportError(f"uploading to the Hugging Face hub needs: {install_hint('hub')}") from missing
    hub = HfApi()
    with tempfile.TemporaryDirectory(prefix="tableless-") as temporary:
        save_pretrained(run, facts, Path(temporary))
        address = hub.create_repo(repo_id, private=private, exist_ok=True)
        hub.upload_folder(
            repo_id=repo_id, folder_path=temporary, commit_message=commit_message or "Upload a tableless model"
        )
    return str(address)
