"""Table 1: embedding schemes compared, by what was measured on them rather than by what they are said to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tableless import SCHEMES
from tableless.embedding.deep_hash import PAPER_NETWORK
from tableless.embedding.scheme import EmbeddingScheme
from tableless.files.whole import Line

from .finished import NOT_RUN, Finished
from .running import Experiment, Settings, main
from .training_runs import of_parameters
from .writing import table

EMBEDDING_DIM = 32
# A hundred thousand ids for a look at collisions; two sizes to see whether parameters grow with the vocabulary.
VOCAB_SIZE, LARGER_VOCAB_SIZE = 100_000, 200_000
PUBLISHED = "dhe as published"
# Parameters in the paper's letters; may it be asked about new ids; may side features enter the encoding?
PAPER = {
    "full": ("nd", "no", "no"),
    "hashing-trick": ("md", "yes", "no"),
    "bloom": ("md", "yes", "no"),
    "compositional": ("md + (n/m)d²", "no", "no"),
    "hash-embedding": ("nk + md", "yes", "no"),
    PUBLISHED: ("kd_NN + (h−1)d_NN² + d·d_NN", "yes", "yes"),
}
ROWS = [PUBLISHED, *SCHEMES]


def perform(settings: Settings) -> dict[str, Any]:
    """Build the scheme at its budget and look: nothing is trained."""
    vocab_size = settings["vocab_size"]
    scheme = _build(settings["scheme"], settings["budget"], vocab_size)
    larger = type(scheme)(**{**scheme.config, **_for_vocabulary(scheme, settings["larger_vocab_size"])})
    with torch.no_grad():
        vectors = scheme.eval()(torch.arange(vocab_size))
    _, sizes = torch.unique(vectors, dim=0, return_counts=True)
    return {
        "num_parameters": scheme.num_parameters,
        "parameters_for_larger_vocabulary": larger.num_parameters,
        "ids_sharing_a_vector": int(sizes[sizes > 1].sum()) / vocab_size,
        "num_hashes": int(scheme.config.get("num_hashes", 1 if settings["scheme"] == "hashing-trick" else 0)),
        "answers_new_ids": _answers(scheme, vocab_size + 1),
        "takes_side_features": "side_features" in scheme.config,
    }


def _build(name: str, budget: str, vocab_size: int) -> EmbeddingScheme:
    sizes: dict[str, Any] = {"embedding_dim": EMBEDDING_DIM, "vocab_size": vocab_size}
    if name == PUBLISHED:
        return SCHEMES["dhe"].from_budget(budget, **sizes, **PAPER_NETWORK)
    return SCHEMES[name].from_budget("1/1" if name == "full" else budget, **sizes)


def _for_vocabulary(scheme: EmbeddingScheme, vocab_size: int) -> dict[str, Any]:
    """What must change for more ids, all else the same."""
    return {"vocab_size": vocab_size} if scheme.config.get("vocab_size") else {}


def _answers(scheme: EmbeddingScheme, new_id: int) -> bool:
    try:
        return bool(scheme(torch.tensor([new_id])).isfinite().all())
    except IndexError:
        return False


def _run(name: str) -> Settings:
    sizes = {"vocab_size": VOCAB_SIZE, "larger_vocab_size": LARGER_VOCAB_SIZE}
    return {"scheme": name, "budget": of_parameters("1/4"), **sizes}


EXPERIMENT = Experiment("table1", [_run(name) for name in ROWS], perform)


def section(lines: Sequence[Line]) -> str:
    """The table, with the paper's words beside our figures."""
    finished = Finished(lines)
    headings = ["scheme", "parameters", "grow with the vocabulary", "ids that share a vector", "hashes"]
    headings += ["new ids", "side features", "paper: size", "paper: new ids", "paper: side features"]
    return "\n\n".join(
        [
            f"At 1/4 of the parameters of the table of {VOCAB_SIZE:,} ids of {EMBEDDING_DIM} dimensions (`full`: all "
            "of it), untrained. “Grow”: parameters of the same scheme with twice the ids, over those before. Hash "
            'embedding is open to new ids with `weights="hashed"`; like the paper\'s experiments, ours have a '
            "weight for each known id. In the paper n is the vocabulary, m the rows, k the hashes, h and d_NN depth "
            "and width.",
            table(headings, [_row(name, finished.line(_run(name))) for name in ROWS]),
        ]
    )


def _row(name: str, line: Line | None) -> list[str]:
    paper = PAPER.get(name, ("", "", ""))
    if line is None:
        return [name, NOT_RUN, *[""] * 5, *paper]
    results = line["results"]
    return [
        name,
        f"{results['num_parameters']:,}",
        f"× {results['parameters_for_larger_vocabulary'] / results['num_parameters']:.2f}",
        f"{results['ids_sharing_a_vector']:.1%}",
        str(results["num_hashes"] or ""),
        "yes" if results["answers_new_ids"] else "no",
        "yes" if results["takes_side_features"] else "no",
        *paper,
    ]


if __name__ == "__main__":
    main(EXPERIMENT)
