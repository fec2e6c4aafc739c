"""`tableless export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from .app import app
from .options import AsJson, Run, one_of


@app.command(epilog="Example: tableless export runs/ml --format onnx --out exported/ml")
def export(
    run: Run,
    out: Annotated[Path, typer.Option(help="Directory for the files and export.json.")],
    format: Annotated[str, typer.Option(help="onnx or torch (a torch.export program).")] = "onnx",
    precision: Annotated[str, typer.Option(help="fp32, or int8: smaller files, with small errors.")] = "fp32",
    as_json: AsJson = False,
) -> None:
    """Embeddings and recommender as files that answer without this library, hashing inside."""
    from ..serving.export.exporting import export_run

    report = export_run(
        run,
        out,
        format=one_of("--format", format, "onnx", "torch"),
        precision=one_of("--precision", precision, "fp32", "int8"),
    )
    if as_json:
        print(json.dumps({"out": str(out), **report.as_dict()}))
        return
    for file in report.files:
        agreement = file.agreement
        cosine = f", cosine {agreement.mean_cosine:.4f}, lowest {agreement.lowest_cosine:.4f}"
        print(
            f"{file.file:<19} {file.precision} {file.num_bytes / 1e6:8.2f} MB  largest difference "
            f"{agreement.max_difference:.1e}{cosine if file.precision == 'int8' else ''}"
        )
    for own in report.files[-1].inputs:
        print(f"{own.belongs_to}: {own.takes}")
    print(f"The files are in {out}; export.json says what goes in and what comes out.")
