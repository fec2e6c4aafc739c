"""A trained run as files that answer without the library, each checked against the model before it is kept."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn

from ...embedding.hashing import ENCODING_VERSION
from ...embedding.ids import to_ids
from ...embedding.scheme import Precision
from ...files.scheme_directory import read_json
from ...files.whole import write_text
from ...hints import require_choice
from ...recommender.clicks.click_runs import is_click_run
from ...recommender.models import Recommender
from ...recommender.run_directory import RunDirectory, Side
from .formats import CHECKED, SUFFIXES, Agreement, Format, ids_to_check, measure_agreement, open_file, write_file
from .graphs import Exportable, exportables, is_int8, round_linear_layers

_ROUNDING_SAMPLE = 16_384  # ids: enough for each of many experts to see its share
_RAW_IDS = {
    "integer": "its 64-bit two's-complement pattern, as int64",
    "string": "XXH64 (seed 0) of its UTF-8 bytes, read as int64",
    "specification": "docs/encoding-spec.md",
}


@dataclass(frozen=True)
class ExportedInput:
    """One input of a file, int64 [batch]. `num_rows` is that of a closed scheme: it takes rows, and not ids."""

    name: str
    side: str  # user or item
    kind: str  # of the raw ids: integer or string
    num_rows: int | None

    @property
    def belongs_to(self) -> str:
        """Whose values go in, as a person is told of it."""
        return f"{self.side}s"

    @property
    def takes(self) -> str:
        """What to put in, in words."""
        if self.num_rows is None:
            return f"{self.side} ids, any int64"
        return f"rows 0 to {self.num_rows - 1} of the run's {self.side}s.parquet; any other gives NaN"


@dataclass(frozen=True)
class ExportedFile:
    """One file, float32 out. Its precision is fp32 also in an int8 export if it has no layer to round."""

    file: str
    inputs: Sequence[ExportedInput]
    output: str
    shape: list[str | int]
    precision: Precision
    num_bytes: int
    agreement: Agreement


@dataclass(frozen=True)
class ExportReport:
    """What was written where."""

    out: Path
    format: Format
    precision: Precision
    model: str  # its fingerprint
    files: list[ExportedFile]

    def as_dict(self) -> dict[str, Any]:
        """Plain values: what `export.json` says."""
        files = [
            {**asdict(file), "inputs": [{**asdict(own), "takes": own.takes} for own in file.inputs]}
            for file in self.files
        ]
        return {
            "format": self.format,
            "precision": self.precision,
            "model": self.model,
            "encoding_version": ENCODING_VERSION,
            "raw_ids": _RAW_IDS,
            "files": files,
            "versions": {"torch": torch.__version__},
        }


def export_run(
    run: str | os.PathLike[str], out: str | os.PathLike[str], *, format: Format = "onnx", precision: Precision = "fp32"
) -> ExportReport:
    """Write both embeddings (ids in, vectors out) and the recommender (pairs in, scores out), and `export.json`.

    Hashing is inside the graphs, batches may have any size, and no file needs this library. Weights that the run
    stores in few bits are in the files as they are stored. `int8` rounds the weights of other networks, which makes
    files about a quarter as large; rows of tables stay as they are. If one file does not agree with the model, none is
    kept.
    """
    for name, value, choices in (("format", format, get_args(Format)), ("precision", precision, get_args(Precision))):
        require_choice(name, value, choices)
    if is_click_run(run):
        from .clicks import export_click_run

        return export_click_run(run, out, format=format, precision=precision)
    folder = Path(out)
    stored = RunDirectory(run)
    model, config = stored.read_model()
    nothing_yet = ExportReport(folder, format, precision, stored.fingerprint(), [])
    refuse_another_export(nothing_yet)
    rows, item_ids = model.items.num_known_ids, None
    if model.needs_item_ids and rows is not None:
        item_ids = to_ids(stored.read_list("item")["id"].head(rows))
    parts = exportables(model, item_ids)
    if precision == "int8":
        _round(parts[-1].module, model)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {part.name: folder / f"{part.name}{SUFFIXES[format]}.part" for part in parts}
    try:
        files = [_write_checked(part, paths[part.name], format, model, config["kinds"]) for part in parts]
        if not (folder / "export.json").exists():
            describe_export(nothing_yet)  # from here on, exports of another model to this directory are refused
        for path in paths.values():
            os.replace(path, path.with_suffix(""))
    finally:
        for path in paths.values():
            path.unlink(missing_ok=True)
    report = replace(nothing_yet, files=files)
    describe_export(report)
    return report


def describe_export(report: ExportReport) -> None:
    """Write `export.json`."""
    write_text(report.out / "export.json", json.dumps(report.as_dict(), indent=2) + "\n")


def _write_checked(
    part: Exportable, path: Path, format: Format, model: Recommender, kinds: dict[str, str]
) -> ExportedFile:
    """Write a module to a file that is not yet under its own name, and refuse it if it disagrees."""
    write_file(part.module, path, format, inputs=tuple(part.inputs), output=part.output)
    ids, name = _ids(model), path.with_suffix("").name
    agreement = measure_agreement(open_file(path, format), part.original, *(ids[side] for side in part.inputs.values()))
    precision: Precision = "int8" if is_int8(part.module) else "fp32"
    agreement.require(precision, name)
    rows = {"user": model.users.num_known_ids, "item": model.items.num_known_ids}
    return ExportedFile(
        file=name,
        inputs=[ExportedInput(name, side, kinds[side], rows[side]) for name, side in part.inputs.items()],
        output=part.output,
        shape=["batch", *part.shape],
        precision=precision,
        num_bytes=path.stat().st_size,
        agreement=agreement,
    )


def _round(recommender: nn.Module, model: Recommender) -> None:
    sample = _ids(model, count=_ROUNDING_SAMPLE, seed=2)
    round_linear_layers(recommender, sample["user"], sample["item"])
    if not is_int8(recommender):
        raise ValueError(
            "int8 rounds the weights of networks that are stored in fp32, and this run has none; export it as fp32, "
            "which keeps weights of few bits as they are"
        )


def _ids(model: Recommender, *, count: int = CHECKED, seed: int = 0) -> dict[Side, Tensor]:
    """Ids of users and of items, which make pairs; items in reverse, so that extreme ids also meet ordinary ones."""
    users = ids_to_check(model.users, count=count, seed=seed)
    return {"user": users, "item": ids_to_check(model.items, count=count, seed=seed + 1).flip(0)}


def refuse_another_export(wanted: ExportReport) -> None:
    """A directory holds one export, so that `export.json` describes all of it; the same one may be written again."""
    path = wanted.out / "export.json"
    if not path.exists():
        return
    found = read_json(path)
    if (found.get("format"), found.get("precision")) != (wanted.format, wanted.precision):
        raise FileExistsError(
            f"{wanted.out} holds an export already ({found.get('format')}, {found.get('precision')}); "
            "give another --out"
        )
    if found.get("model") != wanted.model:
        raise FileExistsError(f"{wanted.out} holds an export of another model; give another --out, or delete it")
