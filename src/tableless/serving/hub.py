"""The README.md that goes with a model: what it is, what was measured, how to use it.

Runs on the Hugging Face hub: `save_pretrained`, `from_pretrained` and `push_to_hub`, as its libraries name them.

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

from ..data.loading import recorded_data
from ..files.scheme_directory import CONFIG
from ..files.whole import write_text
from ..recommender.evaluation import METRICS
from ..recommender.run_directory import TrainedRun

_MEASURES = {name: f"test {metric.label}" for name, metric in METRICS.items()} | {
    "popularity_auc": "AUC of popularity alone"
}


def model_card(facts: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Markdown, with the header that the Hugging Face hub reads."""
    rows = {
        "scheme": f"`{facts['scheme']}`",
        "recommender": f"`{facts['backbone']}`",
        "dimensions": f"{facts['embedding_dim']}",
        "parameters of its embeddings": f"{facts['embedding_parameters']:,}",
        "full tables would have": f"{facts['table_parameters']:,}" if facts["table_parameters"] else None,
        "items it recommends": f"{facts['num_items']:,}",
        "new users and items": "answered" if facts["answers_new_ids"] else "not answered",
        "trained on": f"`{config['data']['data']}`",
    }
    rows |= {title: f"{facts['results'][name]:.4f}" for name, title in _MEASURES.items() if name in facts["results"]}
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items() if value is not None)
    return f"""---
library_name: tableless
tags:
- recommender-system
- embeddings
- {facts["scheme"]}
---

# A recommender made with tableless

| | |
| --- | --- |
{table}

```python
import tableless

model = tableless.load("this directory, or the id of this model on the hub")
model.recommend({_example(config, "user")})
model.neighbors({_example(config, "item")})
```

`pip install 'tableless[data,hub]'`. The files are JSON, safetensors and parquet; nothing in them is code.
"""


def _example(config: Mapping[str, Any], side: str) -> str:
    return f'"{side}-7"' if config["kinds"][side] == "string" else "7"


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
