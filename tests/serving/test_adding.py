"""A model is told of new films and people by what they are like, and the run keeps them."""

import shutil

import pandas as pd
import polars as pl
import pytest
import torch

import tableless
from tableless import TrainConfig
from tests.conftest import few_visits
from tests.films import GENRES, world

NEW = {False: [3, 2**50 + 1], True: ["tt-new", "tt0-newer"]}


@pytest.fixture(scope="module", params=[("dhe", True), ("coded", False), ("full", True)])
def trained(request, tmp_path_factory):
    scheme, strings = request.param
    films, out = world(strings=strings), tmp_path_factory.mktemp("adding") / scheme
    with few_visits():
        tableless.train(
            films.actions,
            scheme=scheme,
            budget="1/4" if scheme == "coded" else "1/1",
            embedding_dim=8,
            item_features=films.films,
            user_features=films.people,
            config=TrainConfig(epochs=6, batch_size=512),
            out=out,
        )
    return out, films, NEW[strings]


@pytest.fixture
def model(trained, tmp_path):
    """A run of one's own, to be added to."""
    shutil.copytree(trained[0], tmp_path / "run")
    return tableless.load(tmp_path / "run")


def genres_near(films, model, film, count=8):
    return [films.genre_of.get(near.id) for near in model.neighbors(film, count=count)]


def test_a_new_film_is_recommended_and_lies_among_its_genre_now_and_after_a_restart(model, trained):
    _, films, (film, _) = trained
    model.prepare()
    before = model.recommend(57, count=5)
    assert model.add_items({"id": film, "genres": GENRES[2], "year": 1980, "title": "A new one"}) == [film]
    for each in (model, tableless.load(model.directory)):
        assert genres_near(films, each, film).count(2) >= 6
        person = next(person for person, taste in films.taste_of.items() if taste == 2)
        best = each.recommend(person, count=60, exclude_seen=False)
        assert film in [row.item for row in best]
        assert next(row.title for row in best if row.item == film) == "A new one"
        assert each.is_known("item", film)
        assert [item.item for item in each.items_matching("a new")] == [film]
        assert each.num_items == len(set(films.genre_of)) + 1
        assert each.score([57], [film]).isfinite().all()
    assert [row.item for row in before], "answers were there before"


def test_a_user_who_is_nothing_but_features_gets_films_of_their_taste(model, trained):
    _, films, _ = trained
    model.add_users([{"user_id": 10**12 + taste, "taste": f"likes {taste}"} for taste in range(4)])
    for each in (model, tableless.load(model.directory)):
        for taste in range(4):
            best = [films.genre_of[row.item] for row in each.recommend(10**12 + taste, count=8)]
            assert best.count(taste) >= 6


def test_new_features_of_an_added_film_replace_the_old_ones(model, trained):
    _, films, (film, other) = trained
    model.add_items([{"id": film, "genres": GENRES[0]}, {"id": other, "genres": GENRES[1]}])
    count = model.num_items
    model.add_items({"id": film, "genres": GENRES[3]})
    for each in (model, tableless.load(model.directory)):
        assert each.num_items == count
        assert genres_near(films, each, film).count(3) >= 5
        assert genres_near(films, each, other).count(1) >= 5


@pytest.mark.parametrize("form", ["polars", "pandas", "arrow", "dicts"])
def test_rows_come_in_any_form(model, trained, form):
    _, _, new = trained
    frame = pl.DataFrame({"item_id": new, "genres": [GENRES[0], None], "year": [1990.0, None]})
    given = {"polars": frame, "pandas": pd.DataFrame(frame.to_dict(as_series=False)), "arrow": frame.to_arrow()}
    assert model.add_items(given.get(form, frame.to_dicts())) == new
    assert model.embed(new).isfinite().all()


def test_a_film_of_which_nothing_is_told_has_the_intercept_of_the_map(model, trained):
    _, _, (film, _) = trained
    model.add_items({"id": film})
    torch.testing.assert_close(model.embed([film])[0], model.run.model.items.map[-1].detach(), atol=1e-5, rtol=1e-4)


def test_what_is_not_understood_is_refused_and_nothing_is_kept(model, trained):
    _, films, (film, _) = trained
    known, unseen = films.actions["item_id"][0], films.unseen[0]
    wrong = 5 if isinstance(film, str) else "5"
    for row, message in [
        ({"id": known, "genres": "War"}, "item number 1 of those given is known from training"),
        ([{"id": film}, {"id": known}], "item number 2 of those given is known from training"),
        ({"id": film, "genre": "War"}, "no feature 'genre'.*did you mean 'genres'"),
        ([{"id": film}, {"id": film, "year": "soon"}], "row 2: year: it must be a number"),
        ({"genres": "War"}, "there is no id"),
        ({"id": wrong}, "item ids are"),
        ({"id": True}, "item ids are"),
        (7, "give a row"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.add_items(row)
    with pytest.raises(ValueError, match="user number 1 of those given is known from training"):
        model.add_users({"id": next(iter(films.taste_of)), "age": 4})
    assert not list(model.directory.glob("added_*"))
    model.add_items({"id": unseen, "genres": GENRES[0]})  # it has no actions, so its features may change


def test_a_run_without_features_says_how_to_get_them(tmp_path, short_fits):
    films = world()
    model = tableless.train(films.actions, scheme="full", embedding_dim=4, config=TrainConfig(epochs=1))
    with pytest.raises(ValueError, match="trained without item features"):
        model.add_items({"id": 5})


def test_a_line_that_a_kill_has_cut_short_is_left_out(model, trained):
    _, _, (film, other) = trained
    model.add_items({"id": film, "genres": GENRES[0]})
    path = model.run.files.added["item"].path
    with path.open("a") as file:
        file.write('{"rows": [{"id": 12345, "genr')
    again = tableless.load(model.directory)
    assert again.num_items == model.num_items
    again.add_items({"id": other, "genres": GENRES[0]})
    assert tableless.load(model.directory).num_items == model.num_items + 1


def test_exported_files_answer_for_added_films(model, trained, tmp_path):
    _, _, (film, _) = trained
    model.add_items({"id": film, "genres": GENRES[2], "year": 1980})
    tableless.export(model, tmp_path / "out", format="torch")
    program = torch.export.load(tmp_path / "out" / "item_embedding.pt2").module()
    ids = tableless.to_ids([film, trained[1].actions["item_id"][0], trained[1].unseen[0]])
    expected = model.embed([film, trained[1].actions["item_id"][0], trained[1].unseen[0]])
    torch.testing.assert_close(program(ids), expected, atol=1e-4, rtol=1e-4)


def test_a_copy_has_what_was_added(model, trained, tmp_path):
    _, _, (film, _) = trained
    model.add_items({"id": film, "genres": GENRES[2]})
    model.add_users({"id": 10**12, "taste": "likes 1"})
    model.save(tmp_path / "copy")
    copied = tableless.load(tmp_path / "copy")
    torch.testing.assert_close(copied.embed([film]), model.embed([film]))
    torch.testing.assert_close(copied.embed([10**12], side="user"), model.embed([10**12], side="user"))
    model.save_pretrained(tmp_path / "hub")
    assert not (tmp_path / "hub" / "added_users.jsonl").exists(), "names of people stay at home"
    torch.testing.assert_close(tableless.load(tmp_path / "hub").embed([film]), model.embed([film]))
