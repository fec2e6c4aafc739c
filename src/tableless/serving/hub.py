"""Runs by name: a directory here, or a model on the Hugging Face hub (`tableless.load`, `fetch`, `push_to_hub`).

Only the travelling files of a run go up or come down; none of them can hold code. A directory on disk needs no extra.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.config import recorded_data
from ..embedding.budget import in_units
from ..embedding.scheme import Precision
from ..files.whole import write_text
from ..hints import install_hint
from ..recommender.evaluation import METRICS
from ..recommender.run_directory import TRAVELLING, RunDirectory, StoredRun
from .search import IndexKind
from .settings import AnswerSettings

if TYPE_CHECKING:
    from .model import TrainedModel

PathName = str | os.PathLike[str]


def load(
    run: PathName,
    *,
    precision: Precision = AnswerSettings.precision,
    hot_ids: int = AnswerSettings.hot_ids,
    index: IndexKind = AnswerSettings.index,
    metadata: PathName | None = None,
    interactions: PathName | None = None,
) -> TrainedModel:
    """A trained model that answers, from a run directory or by the id of one on the Hugging Face hub.

    Args:
        run: A run directory, or the id of a model on the hub.
        precision: `"fp32"` (unless given), or `"int8"`: networks in integers, quicker, with small errors.
        hot_ids: For how many users and how many items, those asked for most, vectors are kept, so that they are not
            computed again; 10,000 of each unless given.
        index: `"exact"` (unless given) compares with every item; `"faiss"` looks neighbours and recommendations up.
        metadata: A file with the items' titles.
        interactions: What users have had (a file, a directory, a known dataset): it is not recommended again.

    Returns:
        The model. Its `embed`, `score`, `recommend` and `neighbors` take raw ids, known and new.

    Raises:
        FileNotFoundError: There is no such run, or it has not come to its end.
        ValueError: A file of the run is damaged.

    Example:
        ```python
        import tableless

        model = tableless.load("runs/mine")
        print(model.recommend(42, count=3))
        ```
    """
    from .model import TrainedModel

    return TrainedModel.from_pretrained(
        run, precision=precision, hot_ids=hot_ids, index=index, metadata=metadata, interactions=interactions
    )


def find_run(run: PathName, *, revision: str | None = None) -> RunDirectory:
    """The run directory of that name. Only a name without one, which may be a model's id, is looked for on the hub."""
    if not Path(run).exists() and is_model_id(run):
        return RunDirectory(fetch(os.fspath(run), revision=revision))
    return RunDirectory(run)


_MEASURES = {name: f"test {metric.label}" for name, metric in METRICS.items()} | {
    "popularity_auc": "AUC of popularity alone"
}


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


def model_card(facts: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Markdown, with the header that the Hugging Face hub reads."""
    rows = {
        "scheme": f"`{facts['scheme']}`",
        "recommender": f"`{facts['backbone']}`",
        "dimensions": f"{facts['embedding_dim']}",
        "its embeddings take": in_units(facts["bytes"]),
        "bytes for each known id": f"{facts['bytes_per_id']:.2f}" if facts["bytes_per_id"] else None,
        "full tables would take": in_units(facts["table_bytes"]) if facts["table_bytes"] else None,
        "parameters of its embeddings": f"{facts['embedding_parameters']:,}",
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
