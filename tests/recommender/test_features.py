"""Training with features: they are in the code of a network, and give vectors to ids that no action has."""

import json

import numpy as np
import polars as pl
import pytest
import torch
from typer.testing import CliRunner

import tableless
from tableless import TrainConfig, cli
from tests.conftest import few_visits
from tests.films import FILMS, GENRES, UNSEEN, world

TRAINING = TrainConfig(epochs=6, batch_size=512)
SIZES = {"dhe": "1/1", "coded": "1/4", "full": "1/1"}


@pytest.fixture(scope="module", params=[("dhe", False), ("dhe", True), ("coded", True), ("full", False)])
def trained(request, tmp_path_factory):
    scheme, strings = request.param
    films = world(strings=strings)
    notes = []
    out = tmp_path_factory.mktemp("features") / scheme
    with few_visits():
        model = tableless.train(
            films.actions,
            scheme=scheme,
            budget=SIZES[scheme],
            embedding_dim=8,
            item_features=films.films,
            user_features=films.people,
            config=TRAINING,
            out=out,
            progress=lambda told: notes.append(told.message) if told.stage == "note" else None,
        )
    return model, films, notes, out


def share_of_genre(films, answers, genre):
    return np.mean([films.genre_of[answer] == genre for answer in answers])


def test_a_film_that_nobody_has_seen_lies_among_those_of_its_genre(trained):
    model, films, _, _ = trained
    shares = [
        share_of_genre(films, [near.id for near in model.neighbors(film, count=8)], films.genre_of[film])
        for film in films.unseen
    ]
    assert np.mean(shares) > 0.7, "of four genres, each with a quarter of the films"


def test_films_that_nobody_has_seen_are_listed_behind_the_others_and_recommended(trained):
    model, films, _, _ = trained
    assert model.num_items == len(set(films.actions["item_id"])) + UNSEEN
    for film in films.unseen:
        assert model.is_known("item", film)
    person = next(person for person, taste in films.taste_of.items() if taste == films.genre_of[films.unseen[0]])
    best = [row.item for row in model.recommend(person, count=FILMS, exclude_seen=True)]
    assert set(best) & set(films.unseen)


def test_a_known_id_keeps_the_vector_of_its_scheme(trained):
    model, films, _, _ = trained
    known = films.actions["item_id"].unique(maintain_order=True).to_list()[:20]
    scheme = model.run.model.items
    ids = tableless.to_ids(known)
    rows = (
        ids if scheme.inner.open_vocabulary else torch.tensor([int((scheme.known_ids == id).nonzero()) for id in ids])
    )
    if not scheme.inner.open_vocabulary:
        rows = scheme.known_rows[rows].long()
    torch.testing.assert_close(model.embed(known), scheme.inner(rows).detach(), atol=1e-5, rtol=1e-4)


def test_what_was_done_is_told_and_is_in_the_results(trained):
    model, films, notes, _ = trained
    assert any("genres (tags separated by '|': 6)" in note and "year (number" in note for note in notes)
    assert any("title is not used" in note for note in notes)
    assert any("1 rows repeat item ids" in note for note in notes)
    assert any(f"{UNSEEN} items are known by features alone" in note for note in notes)
    found = model.results["features"]
    assert found["item"]["described"] == UNSEEN
    assert found["item"]["with_features"] == FILMS - 3
    assert found["item"]["unexplained"] < 0.6, "genres decide nearly everything"
    assert found["user"]["with_features"] == len(films.people)


def test_a_run_keeps_all_that_it_needs(trained, tmp_path):
    model, films, _, out = trained
    loaded = tableless.load(out)
    ids = [*films.unseen, *films.actions["item_id"][:5]]
    torch.testing.assert_close(loaded.embed(ids), model.embed(ids))
    assert loaded.recommend(57, count=5) == model.recommend(57, count=5, exclude_seen=False)
    model.save(tmp_path / "copy")
    torch.testing.assert_close(tableless.load(tmp_path / "copy").embed(ids), model.embed(ids))
    config = json.loads((out / "config.json").read_text())
    assert [column["name"] for column in config["features"]["item"]["columns"]] == ["genres", "year"]


def test_evaluation_gives_the_results_of_training(trained):
    model, _, _, _ = trained
    measured = tableless.evaluate(model)
    assert measured["auc"] == pytest.approx(model.results["auc"], abs=1e-6)


def test_a_run_that_has_ended_can_be_resumed_and_stays_as_it_is(trained):
    model, films, _, out = trained
    again = tableless.train(
        films.actions,
        scheme=out.name,
        budget=SIZES[out.name],
        embedding_dim=8,
        item_features=films.films,
        user_features=films.people,
        config=TRAINING,
        out=out,
        resume=True,
    )
    torch.testing.assert_close(again.embed(films.unseen), model.embed(films.unseen))


def test_features_in_the_code_are_seen_by_the_network(short_fits):
    films = world()
    model = tableless.train(
        films.actions, scheme="dhe", budget="1/1", embedding_dim=8, item_features=films.films, config=TRAINING
    )
    inner = model.run.model.items.inner
    assert inner.side_features.num_features == model.run.model.items.num_features
    assert len(inner.side_features.ids) == FILMS - 3
    ids = inner.side_features.ids[:1]
    before = inner(ids)
    other = torch.zeros(1, inner.side_features.num_features)
    other[0, 0] = 1
    inner.side_features.add(ids, other)
    assert not torch.equal(inner(ids), before)


def test_features_can_be_for_new_ids_alone(short_fits):
    films = world()
    model = tableless.train(
        films.actions, embedding_dim=8, budget="1/1", item_features=films.films, features="new-ids", config=TRAINING
    )
    assert model.run.model.items.inner.side_features is None
    assert model.embed(films.unseen).shape == (UNSEEN, 8)


def test_a_period_that_comes_later_has_described_films(short_fits):
    films = world()
    late = films.actions.filter(pl.col("item_id").is_in(films.actions["item_id"].unique().sort()[:10].to_list()))
    others = films.actions.filter(~pl.col("item_id").is_in(late["item_id"].unique().to_list()))
    parts = pl.concat([others.with_columns(split=pl.lit("train")), late.with_columns(split=pl.lit("test"))])
    model = tableless.train(
        parts, split="column", budget="1/1", embedding_dim=8, item_features=films.films, user_features=films.people,
        config=TRAINING,
    )  # fmt: skip
    assert model.results["auc_by_group"]["new items"] > 0.7, "genres decide whom they please"


def test_the_command_and_the_function_do_the_same(tmp_path, short_fits):
    films = world()
    films.actions.write_csv(tmp_path / "ratings.csv")
    films.films.write_csv(tmp_path / "films.csv")
    films.people.write_parquet(tmp_path / "people.parquet")
    arguments = [
        "train", str(tmp_path / "ratings.csv"), "--embedding-dim", "8", "--budget", "1/1", "--epochs", "2",
        "--item-features", f"{tmp_path / 'films.csv'}:genres,year", "--user-features", str(tmp_path / "people.parquet"),
        "--json",
    ]  # fmt: skip
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout.splitlines()[-1])
    model = tableless.train(
        str(tmp_path / "ratings.csv"),
        embedding_dim=8,
        budget="1/1",
        item_features=f"{tmp_path / 'films.csv'}:genres,year",
        user_features=films.people,
        config=TrainConfig(epochs=2),
    )
    assert printed["auc"] == model.results["auc"]
    assert printed["features"] == model.results["features"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scheme": "full", "features": "encoding"}, "features='encoding' needs a scheme with a code, such as 'dhe'"),
        ({"features": "encodings"}, "did you mean 'encoding'"),
        ({"item_features": None, "features": "new-ids"}, "needs features: give --item-features"),
        ({"item_features": "nowhere.parquet"}, "nowhere.parquet does not exist"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, message):
    films = world()
    given = {"item_features": films.films, "embedding_dim": 8, **arguments}
    with pytest.raises(ValueError, match=message):
        tableless.train(films.actions, **given)


def test_features_of_other_ids_are_refused():
    films = world()
    others = films.films.with_columns(item_id=pl.col("item_id") + 1)
    with pytest.raises(ValueError, match="no item of the interactions has a row in the item features"):
        tableless.train(films.actions, item_features=others)


def test_genres_are_what_the_world_says():
    films = world()
    row = films.films.row(0, named=True)
    assert row["genres"] == GENRES[films.genre_of[row["item_id"]]]
