"""The options that say which rows of a file count, beyond `train`: `evaluate`, and `train --stream`.

A file with rows that do not count must give exactly what the clean file gives.
"""

import json

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import tableless
from tableless import cli


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def last_json(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def clean():
    """Actions with ids that are no rows, and dates that are real ones with the day first and with the month first."""
    generator = np.random.default_rng(3)
    pairs = generator.permutation(np.unique(generator.integers(0, (60, 40), (1500, 2)), axis=0))
    months, days = generator.integers(1, 13, (2, len(pairs)))
    return pl.DataFrame(
        {
            "user": pairs[:, 0] * 7 + 1000,
            "item": [f"item-{item}" for item in pairs[:, 1]],
            "rating": generator.integers(4, 6, len(pairs)),
            "date": [f"{month}/{day}/2010" for month, day in zip(months, days, strict=True)],
        }
    )


@pytest.fixture(scope="module")
def trained(clean, tmp_path_factory):
    """A run with tables: it can be measured only on data that comes to the very same users and items."""
    folder = tmp_path_factory.mktemp("trained")
    clean.drop("rating").write_csv(folder / "clean.csv")
    settings = ["--date-format", "mdy", "--scheme", "full", "--epochs", "2", "--batch-size", "64"]
    last_json(run("train", folder / "clean.csv", *settings, "--out", folder / "run", "--json"))
    return folder / "run"


def measured(trained, frame, path, *options):
    frame.write_csv(path)
    return run("evaluate", trained, "--data", path, *options, "--json")


def trained_auc(trained):
    return json.loads((trained / "results.json").read_text())["auc"]


def with_gaps(frame, seed=0):
    """The rows of a frame and, among them, 30 more without a user or an item. Columns of users become floats."""
    generator = np.random.default_rng(seed)
    more = frame[generator.integers(0, len(frame), 30)].with_row_index("row").with_columns(
        user=pl.when(pl.col("row") % 3 > 0).then("user"), item=pl.when(pl.col("row") % 3 == 0).then("item")
    )  # fmt: skip
    places = pl.Series("place", [*range(0, 2 * len(frame), 2), *(2 * generator.integers(0, len(frame), 30) + 1)])
    both = pl.concat([frame, more.drop("row").select(frame.columns)]).with_columns(places).sort("place").drop("place")
    return both.with_columns(pl.col("user").cast(pl.Float64))


class TestEvaluate:
    def test_columns_may_be_called_otherwise(self, trained, clean, tmp_path):
        renamed = clean.drop("rating").rename({"user": "Kunde", "item": "Ware", "date": "Tag"})
        asked = ["--user-col", "Kunde", "--item-col", "Ware", "--time-col", "Tag"]
        assert last_json(measured(trained, renamed, tmp_path / "a.csv", *asked))["auc"] == trained_auc(trained)
        assert "known to mean the user" in str(measured(trained, renamed, tmp_path / "a.csv").exception)
        wrong = measured(trained, renamed, tmp_path / "a.csv", "--user-col", "user").exception
        assert "has no column 'user'; its columns are Kunde" in str(wrong)

    @pytest.mark.parametrize("side", ["user", "item"])
    def test_ids_of_another_kind_are_refused(self, trained, clean, tmp_path, side):
        other = pl.format("x{}", "user") if side == "user" else pl.col("item").str.slice(5)
        refused = measured(trained, clean.drop("rating").with_columns(other.alias(side)), tmp_path / "a.csv").exception
        kinds = ("strings", "integers") if side == "user" else ("integers", "strings")
        expected = f"{side} ids are {kinds[0]} in {tmp_path / 'a.csv'}, and {kinds[1]} in the data that the run"
        assert expected in str(refused)

    @pytest.mark.parametrize("seed", [0, 1])
    def test_rows_without_an_id_are_dropped_if_that_is_asked_for(self, trained, clean, tmp_path, seed):
        gaps = with_gaps(clean.drop("rating"), seed)
        assert last_json(measured(trained, gaps, tmp_path / "a.csv", "--drop-missing"))["auc"] == trained_auc(trained)
        assert "--drop-missing" in str(measured(trained, gaps, tmp_path / "a.csv").exception)

    @pytest.mark.parametrize(("name", "option"), [("rating", []), ("liking", ["--rating-col", "liking"])])
    def test_rows_with_a_low_rating_do_not_count(self, trained, clean, tmp_path, name, option):
        low = clean.with_columns(rating=pl.lit(3), item=pl.lit("item-never")).head(50)
        rated = pl.concat([clean, low.select(clean.columns).cast(clean.schema)]).rename({"rating": name})
        chosen = measured(trained, rated, tmp_path / "a.csv", *option, "--min-rating", "4")
        assert last_json(chosen)["auc"] == trained_auc(trained)
        assert "these are other items" in str(measured(trained, rated, tmp_path / "a.csv").exception)

    def test_a_column_of_ratings_alone_is_refused(self, trained, clean, tmp_path):
        refused = measured(trained, clean, tmp_path / "a.csv", "--rating-col", "rating").exception
        assert "--rating-col (rating_col) rating changes nothing alone" in str(refused)

    def test_dates_may_be_written_otherwise(self, trained, clean, tmp_path):
        """Those of the training have the month first. Read in that way, days and months would change places."""
        swapped = clean.drop("rating").with_columns(pl.col("date").str.replace(r"^(\d+)/(\d+)/", "$2/$1/"))
        asked = last_json(measured(trained, swapped, tmp_path / "a.csv", "--date-format", "dmy"))
        assert asked["auc"] == trained_auc(trained)
        as_trained = measured(trained, swapped, tmp_path / "a.csv")
        assert last_json(as_trained)["auc"] != trained_auc(trained)

    def test_python_has_the_same_options(self, trained, clean):
        gaps = with_gaps(clean).rename({"user": "Kunde", "rating": "liking"})
        asked = {"user_col": "Kunde", "drop_missing": True, "rating_col": "liking", "min_rating": 4}
        assert tableless.evaluate(trained, data=gaps, **asked)["auc"] == trained_auc(trained)


class TestStream:
    def streamed(self, frame, path, *options):
        frame.write_parquet(path)
        settings = ["--stream", "--scheme", "hashing-trick", "--budget", "30000", "--batch-size", "128"]
        return run("train", path, *settings, *options)

    def results(self, *arguments):
        """What does not depend on the clock."""
        results = last_json(self.streamed(*arguments, "--json"))
        del results["seconds"]
        return results

    @pytest.mark.parametrize("seed", [0, 1])
    def test_rows_without_an_id_are_dropped_and_counted(self, clean, tmp_path, seed):
        path, gaps = tmp_path / "a.parquet", with_gaps(clean, seed)
        expected = self.results(clean, path)
        assert expected["actions"] == len(clean)
        assert self.results(gaps, path, "--drop-missing") == expected
        told = self.streamed(gaps, path, "--drop-missing").stderr
        assert "dropped 10 rows without a user" in told
        assert "dropped 20 rows without an item" in told
        assert "--drop-missing" in str(self.streamed(gaps, path).exception)

    @pytest.mark.parametrize(("name", "option"), [("rating", []), ("liking", ["--rating-col", "liking"])])
    def test_rows_with_a_low_rating_do_not_count(self, clean, tmp_path, name, option):
        path, rated = tmp_path / "a.parquet", clean.rename({"rating": name})
        expected = self.results(clean.filter(pl.col("rating") == 5), path)
        assert 100 < expected["actions"] < len(clean) - 100
        chosen = [*option, "--min-rating", "4.5"]
        assert self.results(rated, path, *chosen) == expected
        told = " ".join(self.streamed(rated, path, *chosen).stderr.split())
        assert f"dropped {len(clean) - expected['actions']} rows with a rating below 4.5" in told

    def test_both_together(self, clean, tmp_path):
        path = tmp_path / "a.parquet"
        expected = self.results(clean.filter(pl.col("rating") == 5), path)
        assert self.results(with_gaps(clean), path, "--drop-missing", "--min-rating", "5") == expected

    def test_ratings_that_are_not_used_are_mentioned(self, clean, tmp_path):
        told = " ".join(self.streamed(clean, tmp_path / "a.parquet").stderr.split())
        assert "there is a column `rating`; every row counts as a choice" in told

    def test_what_means_nothing_is_refused(self, clean, tmp_path):
        path = tmp_path / "a.parquet"
        assert "no use for --date-format;" in str(self.streamed(clean, path, "--date-format", "mdy").exception)
        assert "changes nothing alone" in str(self.streamed(clean, path, "--rating-col", "rating").exception)
        assert "no column 'liking'" in str(
            self.streamed(clean, path, "--rating-col", "liking", "--min-rating", "4").exception
        )
