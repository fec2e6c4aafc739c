"""The demonstration: three schemes on the built-in world, in about two minutes."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .comparison import summarise
from .progress import TrainingProgress
from .runs import DataConfig, ModelConfig, load_split, run
from .teachers import Teacher
from .training import TrainConfig

SCHEMES = ("full", "hashing-trick", "dhe")


def run_demo(out: Path, *, seed: int, progress: TrainingProgress) -> tuple[list[dict[str, Any]], Path]:
    """Train each scheme on the world; returns the summary and the directory of the last model."""
    data = DataConfig(data=f"world:seed={seed}")
    split = load_split(data)
    progress.describe(split)
    training = TrainConfig(batch_size=512, learning_rate=2e-3, seed=seed)
    lines: list[dict[str, Any]] = []
    teacher = None
    for number, scheme in enumerate(SCHEMES):
        model = ModelConfig(scheme=scheme, budget="1/1" if scheme == "full" else "1/4")
        line: dict[str, Any] = {"data": data.settings(), "model": asdict(model), "train": asdict(training)}
        progress.on_run(number, len(SCHEMES), line)
        directory = out / scheme
        shutil.rmtree(directory, ignore_errors=True)  # that of an earlier demonstration
        watched: dict[str, Any] = {"on_note": progress.tell, "on_batch": progress.on_batch}
        trained, results = run(data, model, training, split, teacher=teacher, out=directory, **watched)
        teacher = teacher or Teacher(trained, results["stages"])  # the full table, which comes first
        progress.tell(f"{scheme}: test AUC {results['auc']:.4f} in {results['seconds']:.0f} s")
        lines.append(line | {"results": results})
    return summarise(lines), directory
