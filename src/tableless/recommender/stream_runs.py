"""One run on a stream: what `train --stream` does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..embedding.scheme import is_share, resolve_budget
from ..embedding.storage import write_model
from ..embedding.whole_files import write_text
from .checkpoint import require_free
from .datasets import find_data
from .distributed import Processes
from .lists import write_list
from .models import BACKBONES
from .reading.actions import stream_actions
from .reading.columns import guess_columns
from .reading.kinds import first_kinds
from .runs import DataConfig, ModelConfig, choose_device, describe_run, size_scheme
from .streaming import RESERVOIR, Reservoir, StreamReport, train_on_stream
from .training import TrainConfig


def run_stream(
    data: DataConfig,
    model_config: ModelConfig,
    train_config: TrainConfig,
    *,
    out: Path | str | None = None,
    device: str = "auto",
    processes: Processes = Processes(),  # noqa: B008 - frozen
    on_batch: Callable[[StreamReport], None] | None = None,
) -> dict[str, Any]:
    """Train on a stream, each process on its own share; with `out`, leave a run directory."""
    start = time.perf_counter()
    if is_share(model_config.budget):
        raise ValueError(
            f"a budget of {model_config.budget} is a share of a full table, and a stream has no known vocabulary; "
            "give a number of parameters (1000000) or memory (1.5MB)"
        )
    if out is not None and processes.is_first:
        require_free(Path(out))
    files = find_data(data.data, data_dir=data.data_dir)
    columns = guess_columns(files[0], user_col=data.user_col, item_col=data.item_col)
    allowed = resolve_budget(model_config.budget, embedding_dim=model_config.embedding_dim, vocab_size=1)
    schemes = [size_scheme(model_config, allowed // 2, 1, seed=2 * train_config.seed + side) for side in range(2)]
    model = BACKBONES[model_config.backbone](users=schemes[0], items=schemes[1], seed=train_config.seed)
    model.to(choose_device(device))
    reservoir = Reservoir(RESERVOIR, train_config.seed + processes.rank)
    batches = stream_actions(
        files[0] if len(files) == 1 else files[0].parent,
        columns=columns,
        rank=processes.rank,
        world_size=processes.world_size,
        batch_size=max(1, train_config.batch_size // processes.world_size),
    )
    report = train_on_stream(model, batches, train_config, processes=processes, reservoir=reservoir, on_batch=on_batch)
    results = {
        "auc": report.auc,
        "recent_auc": report.recent_auc,
        "actions": report.num_actions,
        "num_parameters": model.num_parameters,
        "embedding_parameters": model.embedding_parameters,
        "seconds": round(time.perf_counter() - start, 2),
    }
    if out is not None and processes.is_first:
        import polars as pl

        kinds = first_kinds(files, columns)
        directory = Path(out)
        config = describe_run(data, model, model_config, train_config, {"user": kinds.user, "item": kinds.item})
        # Names of strings are not kept: a stream is not for listing. Their ids are.
        write_list(pl.DataFrame({"item": reservoir.values, "id": reservoir.values}), directory / "items.parquet")
        write_text(directory / "results.json", json.dumps(results, indent=2) + "\n")
        write_model(directory, config, model.state_dict())  # last: with its config, the run is there
    return results
