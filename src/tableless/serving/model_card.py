"""The README.md that goes with a model: what it is, what was measured, how to use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..recommender.evaluation import METRICS

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
