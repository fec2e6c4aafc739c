"""What the library answers for chosen ids, and what it answered when the golden files were made.

`python -m tests.golden.answers` checks this process, `--threads 2` one with more threads. With `--make`
it trains and writes the golden run of this version, which later versions must then read and answer for.
"""

import argparse
import json
import shutil
from pathlib import Path

FOLDER = Path(__file__).parent
INTEGERS = [0, 1, 7, -1, 2**31, 2**32, 2**63 - 1, -(2**63), 1234567890123456789]
STRINGS = ["", "7", "user_42", "東京", "a" * 300]


def codes() -> dict[str, list[list[float]]]:
    """The first codes of each distribution, for integers and strings."""
    from tableless import to_ids
    from tableless.embedding.encoders import DenseHashEncoder

    found = {}
    for distribution in ("uniform", "gaussian"):
        encoder = DenseHashEncoder(64, distribution=distribution, seed=3)
        for raw in (INTEGERS, STRINGS):
            found[f"{distribution}, {type(raw[0]).__name__}"] = encoder(to_ids(raw))[:, :8].tolist()
    return found


def inputs():
    """Ids of users and items: all that are in the lists above."""
    import torch

    from tableless import to_ids

    ids = torch.cat([to_ids(INTEGERS), to_ids(STRINGS)])
    return ids, ids.flip(0)


def from_modules(model) -> dict[str, list]:
    """Users' vectors, items' vectors and the scores of pairs, from functions of ids."""
    import torch

    users, items = inputs()
    with torch.no_grad():
        scores = model(users, items.unsqueeze(-1)).squeeze(-1)
        return {"users": model.users(users).tolist(), "items": model.items(items).tolist(), "scores": scores.tolist()}


def from_serving(run: Path) -> dict[str, list]:
    """The same from `tableless.load`, which folds batch norm and computes each distinct id once."""
    import tableless

    model = tableless.load(run)
    users, items = inputs()
    return {
        "users": model.embed(users, side="user").tolist(),
        "items": model.embed(items, side="item").tolist(),
        "scores": model.score(users, items).tolist(),
    }


def runs() -> list[Path]:
    """The golden run of every version that left one."""
    return sorted(FOLDER.glob("run-*"))


def expected(run: Path | None = None) -> dict[str, list]:
    """What was found when it was made: the codes, or what a run answers."""
    return json.loads((FOLDER / "codes.json" if run is None else run / "answers.json").read_text())


def require_close(found: dict[str, list], wanted: dict[str, list]) -> None:
    """Within 1e-5 of the largest value."""
    import torch

    assert found.keys() == wanted.keys()
    for name in wanted:
        got, golden = torch.tensor(found[name]), torch.tensor(wanted[name])
        difference = float((got - golden).abs().max() / golden.abs().max())
        assert difference < 1e-5, f"{name} differ by {difference:.1e} of the largest value"


def make() -> None:
    """Train a small model, keep its files, and write down what it answers."""
    from tableless import __version__
    from tableless.data.config import DataConfig
    from tableless.data.loading import load_split
    from tableless.recommender.run_directory import RunDirectory
    from tableless.recommender.runs import ModelConfig, train_and_measure
    from tableless.recommender.training import TrainConfig

    data = DataConfig(data="world:users=60,items=40,actions=1200,clusters=3")
    options = {"depth": 2, "num_hashes": 16, "num_experts": 2, "normalization": "batch"}
    model = ModelConfig(scheme="dhe", budget="1600", embedding_dim=4, options=options)
    out = FOLDER / f"run-{__version__}"
    train_and_measure(data, model, TrainConfig(epochs=3, batch_size=256, learning_rate=1e-2), load_split(data), out=out)
    shutil.rmtree(out / "tensorboard")
    for name in ("metrics.jsonl", "resume.safetensors", "start.safetensors"):
        (out / name).unlink()
    (out / "answers.json").write_text(json.dumps(from_modules(RunDirectory(out).read_model()[0])) + "\n")
    (FOLDER / "codes.json").write_text(json.dumps(codes()) + "\n")


def main() -> None:
    """Check this process, or make the golden files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--make", action="store_true")
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(arguments.threads)
    if arguments.make:
        make()
    from tableless.recommender.run_directory import RunDirectory

    require_close(codes(), expected())
    for run in runs():
        require_close(from_modules(RunDirectory(run).read_model()[0]), expected(run))
        require_close(from_serving(run), expected(run))
    print(f"{len(runs())} runs answer as they did, {torch.get_num_threads()} threads")


if __name__ == "__main__":
    main()
