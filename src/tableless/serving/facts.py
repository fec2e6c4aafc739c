"""What is worth knowing about a trained model: as plain values, and as the README.md that goes with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..embedding.scheme import Precision
from ..recommender.evaluation import METRICS
from ..recommender.run_directory import Side, StoredRun

_MEASURES = {name: f"test {metric.label}" for name, metric in METRICS.items()} | {
    "popularity_auc": "AUC of popularity alone"
}


def model_facts(
    run: StoredRun,
    *,
    num_users: int | None,
    precision: Mapping[Side, Precision],
    example_users: Sequence[int | str] = (),
) -> dict[str, Any]:
    """Sizes, what full tables for the same users and items would have cost, and what was measured after training.

    `num_users` is how many users are known, or None; the number in the results of the training counts more. Without
    either, `table_parameters` is None as well. `precision` is what each side is really computed in. `example_users` are
    a few raw ids of known users; as text, since JavaScript would round large integers.
    """
    results = run.results
    users, items = results.get("num_users", num_users), len(run.listed("item"))
    dim = run.model.items.embedding_dim
    return {
        "scheme": run.config["model"]["items"]["scheme"],
        "backbone": run.config["model"]["backbone"],
        "embedding_dim": dim,
        "parameters": run.model.num_parameters,
        "embedding_parameters": run.model.embedding_parameters,
        "table_parameters": None if users is None else (users + items) * dim,
        "num_users": users,
        "num_items": items,
        "answers_new_ids": run.model.answers_new_ids,
        "precision": _in_words(precision),
        "example_users": [str(user) for user in example_users],
        "results": results,
    }


def _in_words(precision: Mapping[Side, Precision]) -> str:
    """One word where both sides are alike."""
    if precision["user"] == precision["item"]:
        return precision["item"]
    return f"users {precision['user']}, items {precision['item']}"


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
