"""A click model as one file that answers without the library: raw ids, lists and numbers in, logits out."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from ...data.clicks.columns import MISSING, ClickColumn
from ...embedding.scheme import EmbeddingScheme, Precision, seeded
from ...recommender.clicks.click_model import ClickModel
from ...recommender.clicks.click_runs import read_click_run
from ...recommender.clicks.column_vectors import KnownValues
from .exporting import ExportedFile, ExportedInput, ExportReport, describe_export, refuse_another_export
from .formats import CHECKED, SUFFIXES, Format, ids_to_check, measure_agreement, open_file, write_file

_NAME = "click_model"


@dataclass(frozen=True)
class ExportedColumn(ExportedInput):
    """One input of a click model: int64 [batch] or [batch, length], or float32 [batch] for numbers."""

    is_list: bool = False

    @property
    def belongs_to(self) -> str:
        """The column, with the input that it is."""
        return f"{self.name} ({self.side})"

    @property
    def takes(self) -> str:
        """What to put in, in words."""
        if self.kind in ("number", "buckets"):
            return "float32, NaN where it is missing"
        if self.is_list:
            return (
                f"ids, any int64, in a row for each list; {MISSING}, the id of the empty string, fills up shorter ones"
            )
        return f"ids, any int64; {MISSING}, the id of the empty string, where a value is missing"


class ExportedClickModel(nn.Module):
    """The model with its inputs one after the other, as exported programs have them."""

    def __init__(self, model: ClickModel) -> None:
        super().__init__()
        own = copy.deepcopy(model).requires_grad_(False).eval()
        for column in own.value_columns().values():
            column.scheme = cast(EmbeddingScheme, column.scheme.exported())
        if own.joint is not None and own.joint.network is not None:
            own.joint.network = own.joint.network.exported()  # type: ignore[assignment]
        self.model = own
        self.names = [column.name for column in own.columns]

    def forward(self, *inputs: Tensor) -> Tensor:
        """The values of all columns, in their order -> logits [batch]."""
        logits: Tensor = self.model(dict(zip(self.names, inputs, strict=True)))
        return logits


def export_click_run(
    run: str | os.PathLike[str], out: str | os.PathLike[str], *, format: Format = "onnx", precision: Precision = "fp32"
) -> ExportReport:
    """Write the whole model as one file, and `export.json`. A file that does not agree with the model is not kept."""
    if precision == "int8":
        raise ValueError(
            "a click model is exported as fp32; weights that the run stores in few bits are in the file as they are "
            "stored. Leave int8 out"
        )
    folder, stored = Path(out), read_click_run(Path(run))
    report = ExportReport(folder, format, precision, stored.files.fingerprint(), [])
    refuse_another_export(report)
    columns, module = stored.model.columns, ExportedClickModel(stored.model)
    names = tuple(f"column_{place}" for place in range(len(columns)))  # any text may be the name of a column
    inputs = tuple(inputs_to_check(stored.model))

    def original(*values: Tensor) -> Tensor:
        own: Tensor = stored.model({column.name: own for column, own in zip(columns, values, strict=True)})
        return own

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{_NAME}{SUFFIXES[format]}.part"
    try:
        example = tuple(own[:5] for own in inputs)
        write_file(module, path, format, inputs=names, output="logits", example=example)
        agreement = measure_agreement(open_file(path, format), original, *inputs)
        agreement.require(precision, path.with_suffix("").name)
        size = path.stat().st_size
        os.replace(path, path.with_suffix(""))
    finally:
        path.unlink(missing_ok=True)
    described = [
        ExportedColumn(name, column.name, str(column.kind), None, column.is_list)
        for name, column in zip(names, columns, strict=True)
    ]
    file = ExportedFile(path.with_suffix("").name, described, "logits", ["batch"], precision, size, agreement)
    report = replace(report, files=[file])
    describe_export(report)
    return report


def inputs_to_check(model: ClickModel) -> list[Tensor]:
    """For each column values that it treats in different ways: known, new and missing ids, lists of several lengths."""
    return [_values(column, model, seed=place) for place, column in enumerate(model.columns)]


def _values(column: ClickColumn, model: ClickModel, *, seed: int) -> Tensor:
    generator = seeded(seed)
    if column.is_number:
        numbers = torch.randn(CHECKED, generator=generator) * 10 ** torch.randint(0, 4, (CHECKED,), generator=generator)
        return torch.where(torch.rand(CHECKED, generator=generator) < 0.1, torch.nan, numbers)
    ids = _ids(column, model, seed=seed)
    if not column.is_list:
        return ids
    lists = ids[torch.randint(len(ids), (CHECKED, 5), generator=generator)]
    lengths = torch.randint(0, 6, (CHECKED, 1), generator=generator)
    return torch.where(torch.arange(5) < lengths, lists, MISSING)


def _ids(column: ClickColumn, model: ClickModel, *, seed: int) -> Tensor:
    """Ids of every size. Those of a table are not listed anywhere, so some are looked for that it takes for known."""
    if column.name in model.joint_names:
        assert model.joint is not None
        assert model.joint.network is not None
        return ids_to_check(model.joint.network, seed=seed)
    own = model.value_columns()[column.name]
    if own.known is None:
        ids = ids_to_check(own.scheme, seed=seed)
    else:
        ids = torch.cat([_taken_for_known(own.known, seed), torch.arange(-100, 200)])
        ids = ids[torch.randint(len(ids), (CHECKED,), generator=seeded(seed))]
    ids[:: CHECKED // 10] = MISSING
    return ids


def _taken_for_known(known: KnownValues, seed: int) -> Tensor:
    """One of 256 new ids passes for a known one, and has its row."""
    ids = torch.randint(-(2**63), 2**63 - 1, (100_000,), generator=seeded(seed + 1))
    return ids[known(ids) > 0]
