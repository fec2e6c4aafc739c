"""`tableless recommend`."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from .app import app
from .options import AsJson, Run


@app.command(epilog="Example: tableless recommend runs/ml --user 42 -n 10 --items movies.csv")
def recommend(
    run: Run,
    user: Annotated[str, typer.Option(help="A user's id as the data has it; new ones are welcome.")],
    count: Annotated[int, typer.Option("-n", "--count", help="How many items.")] = 10,
    items: Annotated[Path | None, typer.Option(help="A file with the items' titles (CSV or parquet).")] = None,
    interactions: Annotated[
        str | None, typer.Option(help="Data that says what users have had: it is not recommended again.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The best items for a user."""
    from ..serving.model import TrainedModel

    model = TrainedModel.from_pretrained(run, metadata=items, interactions=interactions)
    best = model.recommend(model.parse("user", user), count=count)
    if as_json:
        print(json.dumps({"user": user, "known": best.known, "items": [asdict(row) for row in best]}))
        return
    if best.known is False:
        print(f"User {user} is new: the model has no actions of theirs.")
    width = shutil.get_terminal_size().columns
    for place, row in enumerate(best, start=1):
        print(cut(f"{place:3}  {row.item!s:<24} {row.score:8.3f}  {row.title or ''}".rstrip(), width))


def cut(line: str, width: int) -> str:
    """A line that fits the terminal. A long title loses its end, and --json has all of it."""
    return line if len(line) <= width else line[: max(width - 1, 1)] + "…"
