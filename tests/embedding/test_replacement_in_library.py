"""A model of somebody else's library, trained by its own trainer, does with replaced tables what it did before."""

import numpy as np
import pytest
import torch

pytest.importorskip("torch_rechub", reason="pip install 'tableless[libraries]'")
pl = pytest.importorskip("polars")

from examples import replace_in_torch_rechub as example  # noqa: E402
from torch_rechub.basic.features import SequenceFeature, SparseFeature  # noqa: E402
from torch_rechub.models.ranking import DIN  # noqa: E402

from tableless import load_replaced, replace_embeddings, save_replaced  # noqa: E402

USERS, MOVIES, DIM = 1_000, 600, 16


@pytest.fixture(scope="module")
def split():
    """Users who like what lies in the direction of their taste, and what everybody likes."""
    random = np.random.default_rng(0)
    tastes, films, appeal = random.normal(size=(USERS, 2)), random.normal(size=(MOVIES, 2)), random.normal(size=MOVIES)
    user, movie = random.integers(USERS, size=80_000), random.integers(MOVIES, size=80_000)
    liking = 1.5 * (tastes[user] * films[movie]).sum(-1) + appeal[movie]
    return example.split_by_time(
        pl.DataFrame(
            {
                "user": user,
                "movie": movie,
                "hour": random.integers(24, size=len(user)),
                "label": (random.random(len(user)) < 1 / (1 + np.exp(-liking))).astype(np.float32),
                "time": np.arange(len(user)),
            }
        )
    )


def test_the_split_is_by_time_within_each_user(split):
    sizes = [len(part.labels) for part in (split.train, split.validation, split.test)]
    assert sum(sizes) == 80_000
    assert sizes == pytest.approx([64_000, 8_000, 8_000], rel=0.06)
    assert split.vocab_sizes == {"user": USERS, "movie": MOVIES, "hour": 24}
    assert set(split.test.features["user"].tolist()) == set(range(USERS))


@pytest.mark.filterwarnings("ignore::tableless.embedding.PoorFitWarning")
def test_deep_fm_keeps_its_accuracy_without_its_tables(split):
    outcomes = example.measure(split, ["1/8"], scheme="auto", min_rows=500, embed_dim=DIM, epochs=12)
    trained, fresh = outcomes["as trained"], outcomes["1/8, fresh"]
    distilled, tuned, fine_tuned = (outcomes[f"1/8, {way}"] for way in ("distilled", "tuned", "fine-tuned"))
    assert trained.auc > 0.78
    assert fresh.auc < 0.6
    assert distilled.auc > trained.auc - 0.02
    assert tuned.auc > distilled.auc
    assert fine_tuned.auc > trained.auc - 0.02
    assert tuned.bytes == distilled.bytes <= trained.bytes // 8


def test_a_sequence_feature_that_shares_a_padded_table_is_answered_as_before():
    movie = SparseFeature("movie", vocab_size=MOVIES, embed_dim=DIM, padding_idx=0)
    seen = SequenceFeature("seen", MOVIES, embed_dim=DIM, pooling="concat", shared_with="movie", padding_idx=0)
    user = SparseFeature("user", vocab_size=50, embed_dim=DIM)
    torch.manual_seed(0)
    model = DIN([user], [seen], [movie], mlp_params={"dims": [16]}, attention_mlp_params={"dims": [8]}).eval()
    with torch.no_grad():
        model.embedding.embed_dict["movie"].weight[1:].normal_()  # the library starts at 0.0001: hardly an effect
    inputs = {
        "user": torch.randint(50, (200,)),
        "movie": torch.randint(1, MOVIES, (200,)),
        "seen": torch.randint(1, MOVIES, (200, 6)) * (torch.rand(200, 6) < 0.7),
    }
    before = model(inputs).detach()
    (entry,) = replace_embeddings(model, "1/1", min_rows=500, visits=200)
    assert entry.name == "embedding.embed_dict.movie"
    assert torch.equal(model.embedding.embed_dict["movie"](torch.tensor(0)), torch.zeros(DIM))
    after = model(inputs).detach()
    assert float(torch.corrcoef(torch.stack([before, after]))[0, 1]) > 0.9


def test_a_replaced_model_is_saved_and_loaded_into_one_that_the_library_builds(tmp_path):
    def build(seed):
        torch.manual_seed(seed)
        movie = SparseFeature("movie", vocab_size=MOVIES, embed_dim=DIM, padding_idx=0)
        seen = SequenceFeature("seen", MOVIES, embed_dim=DIM, pooling="concat", shared_with="movie", padding_idx=0)
        return DIN([movie], [seen], [movie], mlp_params={"dims": [16]}, attention_mlp_params={"dims": [8]}).eval()

    model = build(0)
    replace_embeddings(model, "1/2", min_rows=500, distil=False)
    save_replaced(model, tmp_path)
    inputs = {"movie": torch.randint(1, MOVIES, (50,)), "seen": torch.randint(0, MOVIES, (50, 6))}
    assert torch.equal(load_replaced(build(1), tmp_path)(inputs), model(inputs))
