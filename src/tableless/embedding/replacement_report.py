"""What `replace_embeddings` has done: the tables it replaced, those it left alone, and what still uses the old ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .budget import in_units


@dataclass(frozen=True)
class Replacement:
    """A table that `tableless.replace_embeddings` has replaced.

    Attributes:
        names: The dotted names that the table had in the model. A shared table has several.
        rows: How many rows it had.
        embedding_dim: Dimensions of a row.
        bytes_before: Bytes of the table, in its own precision.
        bytes_after: Bytes of the scheme in its place, as it is stored (`scheme.num_bytes`).
        parameters_before: Parameters of the table.
        parameters_after: Parameters of the scheme in its place.
        unexplained: The share of the table that is lost, as in `tableless.Distillation`. None with `distil=False`.
        mean_cosine: The mean cosine of rows and fitted vectors. None with `distil=False`.
        seconds: How long it took.

    Example:
        ```python
        import torch
        from tableless import replace_embeddings

        model = torch.nn.Sequential(torch.nn.Embedding(2_000, 16), torch.nn.Linear(16, 1))
        (table,) = replace_embeddings(model, budget="1/16", min_rows=1_000, scheme="low-rank")
        print(table.name, table.bytes_before, table.bytes_after, table.unexplained)
        ```
    """

    names: tuple[str, ...]
    rows: int
    embedding_dim: int
    bytes_before: int
    bytes_after: int
    parameters_before: int
    parameters_after: int
    unexplained: float | None
    mean_cosine: float | None
    seconds: float

    @property
    def name(self) -> str:
        """The first of the names."""
        return self.names[0]

    def __str__(self) -> str:
        """One line: the table, its bytes before and after, and parameters."""
        also = f" (also {', '.join(self.names[1:])})" if len(self.names) > 1 else ""
        lost = "" if self.unexplained is None else f", {self.unexplained:.1%} of it is lost"
        return (
            f"{self.name}{also}: {self.rows:,} × {self.embedding_dim}, "
            f"{in_units(self.bytes_before)} → {in_units(self.bytes_after)} "
            f"({self.parameters_before:,} → {self.parameters_after:,} parameters){lost}"
        )


@dataclass(frozen=True)
class LeftAlone:
    """A table that `tableless.replace_embeddings` has not replaced.

    Attributes:
        name: Its dotted name in the model.
        reason: Why it was left alone, and what to do if that is not what you want.

    Example:
        ```python
        import torch
        from tableless import replace_embeddings

        model = torch.nn.ModuleDict({"users": torch.nn.Embedding(2_000, 16), "days": torch.nn.Embedding(7, 16)})
        tables = replace_embeddings(model, budget="1/16", min_rows=1_000, scheme="low-rank")
        for table in tables.left_alone:
            print(table.name, table.reason)
        ```
    """

    name: str
    reason: str

    def __str__(self) -> str:
        """One line: the name and the reason."""
        return f"{self.name}: {self.reason}"


class Replacements(list[Replacement]):
    """The tables that were replaced, as a list. It also says what was left alone, and what still uses an old table.

    Args:
        replaced: A report for each table that was replaced.
        left_alone: Tables, and parameters of the shape of a table, that were not replaced, each with the reason.
        still_referring: Names of attributes of the model that still hold a table that was replaced, or its weight: a
            list of weights to regularise, for instance, or an optimizer.

    Example:
        ```python
        import torch
        from tableless import replace_embeddings

        model = torch.nn.ModuleDict({"users": torch.nn.Embedding(2_000, 16), "days": torch.nn.Embedding(7, 16)})
        tables = replace_embeddings(model, budget="1/16", min_rows=1_000, scheme="low-rank")
        print(tables)
        ```
    """

    def __init__(
        self,
        replaced: Iterable[Replacement] = (),
        *,
        left_alone: Iterable[LeftAlone] = (),
        still_referring: Iterable[str] = (),
    ) -> None:
        super().__init__(replaced)
        self.left_alone = list(left_alone)
        self.still_referring = list(still_referring)

    def __str__(self) -> str:
        """A line for each table and for each thing that was noticed."""
        lines = ["replaced:", *(f"  {table}" for table in self)] if self else ["no table is replaced"]
        if self.left_alone:
            lines += ["left alone:", *(f"  {table}" for table in self.left_alone)]
        if self.still_referring:
            lines += ["still hold an old table:", *(f"  {name}" for name in self.still_referring)]
        return "\n".join(lines)
