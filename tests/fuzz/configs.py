"""Configs that are right, nearly right and quite wrong, beside weights that are right: loaded, or refused."""

import json
from pathlib import Path
from random import Random

import torch

from tableless import SCHEMES, DeepHashEmbedding, load_scheme, save_scheme

_IDS = torch.arange(5)
_ODD = [None, True, -1, 0, 1, 2.5, 10**9, 10**18, 10**40, "", "8", "dhe", [], [1], {}, {"depth": 10**9}, float("nan")]


def fuzz_configs(random: Random, folder: Path) -> int:
    """One config."""
    name = random.choice(["dhe", "dhe of five bits", "low-rank", "full", "bloom", "head-and-tail", "coded"])
    directory = folder / name
    if not directory.exists():
        save_scheme(_scheme(name), directory)
        (directory / "config.json").rename(directory / "right.json")
    right = json.loads((directory / "right.json").read_text())
    text = json.dumps(_changed(random, right)).encode()
    if random.randrange(4) == 0:
        place = random.randrange(len(text))
        text = text[:place] + random.randbytes(random.randrange(3)) + text[place + random.randrange(3) :]
    (directory / "config.json").write_bytes(text)
    try:
        scheme = load_scheme(directory)
    except ValueError as error:
        refusal = str(error)
    else:
        assert scheme(_IDS).shape == (5, 4), text
        return 1
    assert "\n" not in refusal, f"more than a line: {refusal}"
    assert str(directory) in refusal, f"it does not say which file: {refusal}"
    return 1


def _scheme(name: str):
    if name.startswith("dhe"):
        return DeepHashEmbedding(4, width=4, depth=1, num_hashes=4, weight_bits=5 if "five" in name else 32)
    if name == "low-rank":
        return SCHEMES[name](4, vocab_size=60, rank=3, weight_bits=5)
    if name == "coded":
        return SCHEMES[name](4, vocab_size=60, num_bits=20, check_bits=4, num_added=2)
    return SCHEMES[name].from_budget("1/1 parameters", embedding_dim=4, vocab_size=60)


def _changed(random: Random, value: object) -> object:
    """The same with a few places changed, whatever their depth."""
    if isinstance(value, dict):
        changed = {key: _changed(random, own) for key, own in value.items() if random.randrange(40)}
        if random.randrange(20) == 0:
            changed[random.choice(["extra", "width", "seed", "side_features", "network", "packed"])] = random.choice(
                _ODD
            )
        return changed
    return random.choice([*_ODD, value]) if random.randrange(8) == 0 else value
