"""Saved schemes of codes, and the vectors that they gave when they were saved: a change of the bit format shows here.

`python -m tests.golden.schemes` makes those of this version. Later versions must read the files and answer as they did.
Nothing is fitted again by the tests: another processor may round otherwise, and that is no fault.
"""

import json
import shutil
from pathlib import Path

from .answers import INTEGERS, STRINGS

FOLDER = Path(__file__).parent
COUNT, DIM = 40, 14
EXTRA = ["added later", "東京"]
"""Two ids that `add` gives a row: one is new, the other was put in."""

NETWORK = {"width": 6, "depth": 1, "num_hashes": 8, "normalization": "none", "weight_bits": 5}


def put_in():
    """The ids with a row of their own: integers from the whole range, strings, gaps."""
    from tableless import to_ids

    return to_ids([*INTEGERS[::2], *range(100, 100 + 7 * (COUNT - 10), 7)]), to_ids(STRINGS)


def asked(scheme):
    """Ids with a row, and ids without one if the scheme is open: what those get is part of the format, too."""
    import torch

    from tableless import to_ids

    if not scheme.open_vocabulary:
        return torch.arange(COUNT)
    return torch.cat([*put_in(), to_ids(INTEGERS[1::2]), to_ids(EXTRA), to_ids(["nobody", "no one"])])


def answers(scheme) -> dict[str, list]:
    """Vectors by the paths that a scheme has: with gradients, without, and served."""
    import torch

    ids = asked(scheme)
    with_gradients = scheme(ids)
    with torch.no_grad():
        vectors, served = scheme(ids), scheme.served("fp32", ids).vectors(ids)
    return {"vectors": vectors.tolist(), "served": served.tolist(), "with gradients": with_gradients.tolist()}


def saved() -> list[Path]:
    """The golden schemes of every version that left some."""
    return sorted(path.parent for path in FOLDER.glob("schemes-*/*/answers.json"))


def expected(directory: Path) -> dict[str, list]:
    """What was found when it was made."""
    vectors = json.loads((directory / "answers.json").read_text())
    return {"vectors": vectors, "served": vectors, "with gradients": vectors}


def make() -> None:
    """Fit a scheme of each kind to the same table, and write it down with its vectors."""
    import torch

    from tableless import __version__, distil, save_scheme, to_ids
    from tableless.embedding.tables import CodedEmbedding, ProductQuantizedEmbedding, QuantizedEmbedding

    ids, random = torch.cat(put_in()), torch.Generator().manual_seed(11)
    rows = torch.randn(COUNT, DIM, generator=random) * torch.linspace(3, 0.1, DIM)
    coded = {"vocab_size": COUNT, "window": 5, "seed": 7}
    kinds = {
        "coded": CodedEmbedding(DIM, num_bits=37, **coded),
        "coded-turned": CodedEmbedding(DIM, num_bits=71, gain_bits=3, rotated=True, **coded),
        "coded-checked": CodedEmbedding(DIM, num_bits=50, check_bits=9, **coded),
        "coded-added": CodedEmbedding(DIM, num_bits=42, check_bits=5, **coded),
        "coded-network": CodedEmbedding(DIM, num_bits=44, check_bits=7, network=NETWORK, **coded),
        "quantized": QuantizedEmbedding(DIM, vocab_size=COUNT, bits=4),
        "product-quantized": ProductQuantizedEmbedding(DIM, vocab_size=COUNT, num_parts=3, bits_per_part=4),
    }
    out = FOLDER / f"schemes-{__version__}"
    shutil.rmtree(out, ignore_errors=True)
    for name, scheme in kinds.items():
        distil(rows, scheme, ids=ids if scheme.open_vocabulary else None, visits=9, progress=False)
        if name == "coded-added":
            scheme.add(to_ids(EXTRA), torch.arange(2.0 * DIM).view(2, DIM))
        save_scheme(scheme, out / name)
        vectors = scheme(asked(scheme)).tolist()
        (out / name / "answers.json").write_text(json.dumps(vectors) + "\n")


if __name__ == "__main__":
    make()
