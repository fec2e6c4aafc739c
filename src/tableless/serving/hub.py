"""Runs on the Hugging Face hub: `save_pretrained`, `from_pretrained` and `push_to_hub`, as its libraries name them.

Only the files of `FILES` ever go up or come down, none of which can hold code. A directory on disk needs no extra.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..embedding.storage import CONFIG
from ..embedding.whole_files import write_text
from ..recommender.answers import TrainedRun
from ..recommender.runs import recorded_data
from .model_card import model_card

FILES = ("config.json", "model.safetensors", "items.parquet", "users.parquet", "results.json")


def find_run(run: str | os.PathLike[str], *, revision: str | None = None) -> Path:
    """The directory of a run: the one named, or what the hub has under that id, fetched unless it is in the cache."""
    directory = Path(run)
    is_id = isinstance(run, str) and re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", run)
    if directory.exists() or not is_id:
        return directory
    try:
        from huggingface_hub import snapshot_download
    except ImportError as missing:
        raise FileNotFoundError(
            f"there is no directory {run}; if it is a model on the Hugging Face hub: pip install 'tableless[hub]'"
        ) from missing
    try:
        return Path(snapshot_download(str(run), revision=revision, allow_patterns=list(FILES)))
    except OSError as error:  # what is wrong there, or that there is no connection
        reason = str(error).strip().partition("\n")[0]
        raise FileNotFoundError(f"{run} is no directory here, and the Hugging Face hub says: {reason}") from error


def save_pretrained(run: TrainedRun, facts: Mapping[str, Any], directory: Path) -> None:
    """Write what loading needs and a model card. Where on this machine the data was is left out."""
    data = recorded_data(run.config)
    test = None if data.test is None else Path(data.test).name
    config = {**run.config, "data": replace(data, data=Path(data.data).name, data_dir=None, test=test).settings()}
    directory.mkdir(parents=True, exist_ok=True)
    if directory.resolve() != run.directory.resolve():
        _copy_files(run.directory, directory)
    write_text(directory / "README.md", model_card(facts, config))
    write_text(directory / CONFIG, json.dumps(config, indent=2) + "\n")


def push_to_hub(
    run: TrainedRun,
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
        raise ImportError("uploading to the Hugging Face hub needs: pip install 'tableless[hub]'") from missing
    hub = HfApi()
    with tempfile.TemporaryDirectory(prefix="tableless-") as temporary:
        save_pretrained(run, facts, Path(temporary))
        address = hub.create_repo(repo_id, private=private, exist_ok=True)
        hub.upload_folder(
            repo_id=repo_id, folder_path=temporary, commit_message=commit_message or "Upload a tableless model"
        )
    return str(address)


def _copy_files(source: Path, target: Path) -> None:
    """All but the config, whose place is empty from the moment that files of two runs may be beside each other."""
    names = [name for name in FILES if name != CONFIG and (source / name).exists()]
    with tempfile.TemporaryDirectory(prefix=".", dir=target) as temporary:
        for name in names:  # what was there before is left alone until all is known to fit on the disk
            shutil.copyfile(source / name, Path(temporary) / name)
        for name in FILES:
            (target / name).unlink(missing_ok=True)
        for name in names:
            os.replace(Path(temporary) / name, target / name)
