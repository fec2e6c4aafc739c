from dataclasses import asdict, replace
from functools import cache

import numpy as np
import pytest
import torch

from tableless import SCHEMES
from tableless.data.config import DataConfig
from tableless.data.loading import load_split
from tableless.embedding import distillation
from tableless.recommender import recipes
from tableless.recommender.evaluation import measure_scorer
from tableless.recommender.models import GMF, MLP
from tableless.recommender.recipes import Watchers, train_by_recipe, train_teacher
from tableless.recommender.runs import ModelConfig, build_model, train_and_measure
from tableless.recommender.scoring import model_scores
from tableless.recommender.stage_settings import fine_tuning, teacher_training, with_loss, with_temperature
from tableless.recommender.teachers import fit_to_teacher, untrained_teachers
from tableless.recommender.training import TrainConfig
from tableless.recommender.training_loop import train_model
from tests.data.tiny import small_split

DATA = DataConfig(data="world:users=600,items=300,actions=40000")
TRAINING = TrainConfig(epochs=12, batch_size=512, learning_rate=5e-3)
SHORT = replace(TRAINING, epochs=2)
"""For what is recorded and repeated, and not for how well it ranks."""


@cache
def world():
    return load_split(DATA)


@pytest.mark.parametrize(("backbone", "epochs"), [("gmf", 8), ("mlp", 3)])
def test_a_network_fitted_to_a_table_ranks_nearly_as_the_table_does(backbone, epochs):
    split = world()
    teacher = build_model(ModelConfig(scheme="full", backbone=backbone), split, seed=0)
    train_model(teacher, split, replace(TRAINING, epochs=epochs))
    student = build_model(ModelConfig(scheme="dhe", budget="1/1 parameters", backbone=backbone), split, seed=0)
    before = measure_scorer(model_scores(student, split), split).auc
    fit_to_teacher(student, teacher, split)
    after, goal = (measure_scorer(model_scores(model, split), split).auc for model in (student, teacher))
    assert before < 0.6 < goal
    assert after > goal - 0.03


def test_the_fast_recipe_beats_the_paper_s_in_the_same_epochs():
    config = ModelConfig(scheme="dhe", budget="1/1 parameters")
    aucs = {
        recipe: train_and_measure(DATA, config, replace(TRAINING, epochs=3, recipe=recipe), world())[1]["auc"]
        for recipe in ("fast", "paper")
    }
    assert aucs["fast"] > aucs["paper"]


def test_an_encoding_that_needs_a_vocabulary_is_fitted_by_the_rows_of_the_table(monkeypatch):
    monkeypatch.setattr(distillation, "_MOST_VISITS", 120)
    config = ModelConfig(scheme="dhe", budget="1/1 parameters", options={"encoding": "binary"})
    results = train_and_measure(DATA, config, replace(TRAINING, epochs=3), world())[1]
    assert results["auc"] > 0.6


def test_head_and_tail_gives_its_rows_to_the_most_frequent_and_learns_the_rest_from_a_table(short_fits):
    split, config = world(), ModelConfig(scheme="head-and-tail", budget="1/1 parameters")
    model, results = train_and_measure(DATA, config, replace(TRAINING, epochs=6), split)
    counts = torch.from_numpy(np.bincount(split.train.items, minlength=split.train.num_items))
    expected = torch.from_numpy(np.array(split.train.item_ids))[
        counts.argsort(descending=True, stable=True)[: model.items.num_frequent]
    ]
    assert model.items.head.ids.tolist() == sorted(expected.tolist())
    assert results["auc"] > results["popularity_auc"]


def test_the_first_table_has_weight_decay_and_one_that_learns_from_it_has_none():
    split = small_split()
    model = build_model(ModelConfig(scheme="dhe", budget="1/1 parameters", backbone="mlp"), split, seed=0)
    gmf, mlp = untrained_teachers(model, split)
    assert teacher_training(TRAINING, gmf, split) == replace(TRAINING, weight_decay=GMF.table_decay)
    assert teacher_training(TRAINING, mlp, split) == TRAINING
    assert teacher_training(replace(TRAINING, weight_decay=0.5), gmf, split).weight_decay == 0.5


def test_fine_tuning_takes_batches_that_leave_hardly_an_id_out_but_some_steps_to_an_epoch():
    own = {"budget": "1/1 parameters", "backbone": "mlp"}
    model = build_model(ModelConfig(scheme="dhe", **own), small_split(), seed=0)
    config = fine_tuning(TrainConfig(epochs=50), small_split(), model)
    assert (config.epochs, config.schedule) == (10, "one-cycle")
    assert config.batch_size == small_split().train.num_actions // 10
    assert fine_tuning(TrainConfig(epochs=3), small_split(), model).epochs == 3
    narrow = build_model(ModelConfig(scheme="low-rank", **own), small_split(), seed=0)
    assert fine_tuning(TrainConfig(), small_split(), narrow).learning_rate > config.learning_rate


def test_the_paper_s_recipe_has_the_paper_s_network():
    model, _ = train_and_measure(
        DATA, ModelConfig(scheme="dhe", budget="1/1 parameters"), TrainConfig(epochs=1, recipe="paper"), small_split()
    )
    assert (model.users.num_hashes, model.users.depth, model.users.normalization) == (1024, 5, "batch")


def test_a_vocabulary_too_large_for_a_table_is_trained_from_nothing(monkeypatch):
    monkeypatch.setattr(recipes, "LARGEST_TEACHER", 100)
    notes = []
    model = build_model(ModelConfig(scheme="dhe", budget="1/1 parameters"), small_split(), seed=0)
    training = train_by_recipe(model, small_split(), TrainConfig(epochs=2), watchers=Watchers(on_note=notes.append))
    assert "too large to learn from" in notes[0]
    assert [stage["stage"] for stage in training.stages] == ["from nothing"]
    assert len(training.reports) == 2


@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name != "full"])
def test_every_scheme_is_fitted_to_the_same_table_and_tuned_by_it(scheme, short_fits):
    """The recipe belongs to the run: no scheme has a better teacher, a decay or targets that another has not."""
    # The small world is enough, but robe's fit to its table is worse than the mean row.
    split, training = world() if scheme == "robe" else small_split(), SHORT
    model, results = train_and_measure(DATA, ModelConfig(scheme=scheme, budget="1/2 parameters"), training, split)
    by_turns = ["by turns"] if SCHEMES[scheme].rounds_rows else []
    assert [stage["stage"] for stage in results["stages"]] == ["table (GMF)", "fit", *by_turns, "tuning"]
    table, fit, *_, tuning = results["stages"]
    by_softmax = with_temperature(replace(training, loss="softmax"), model, split)
    assert table["settings"] == asdict(teacher_training(by_softmax, model, split))
    assert tuning["settings"] == asdict(fine_tuning(by_softmax, split, model))
    assert 0 <= fit["users"]["unexplained"] < 1
    settings = [fit["users"][name] for name in ("visits", "batch_size", "learning_rate")]
    assert all(settings) if fit["users"]["steps"] else settings == [None] * 3
    if SCHEMES[scheme].needs_table:
        return  # it cannot be trained from nothing (test_training.py)
    plain = train_and_measure(
        DATA, ModelConfig(scheme=scheme, budget="1/2 parameters"), replace(training, recipe="paper"), split
    )[1]
    assert [stage["stage"] for stage in plain["stages"]] == ["from nothing"]
    assert plain["recipe"] == plain["stages"][0]["settings"]["recipe"] == "paper"
    assert plain["stages"][0]["settings"]["weight_decay"] == 0


@pytest.mark.parametrize(
    ("backbone", "recipe", "loss"),
    [("gmf", "fast", "softmax"), ("gmf", "paper", "bce"), ("mlp", "fast", "bce"), ("mlp", "paper", "bce")],
)
def test_the_loss_follows_from_the_recipe_and_the_backbone_unless_it_is_given(backbone, recipe, loss):
    model = build_model(ModelConfig(scheme="full", backbone=backbone), small_split(), seed=0)
    assert with_loss(TrainConfig(recipe=recipe), model).loss == loss
    assert with_loss(TrainConfig(recipe=recipe, loss="bpr"), model).loss == "bpr"


def test_tables_of_users_with_many_actions_are_trained_by_whole_users():
    model, many = build_model(ModelConfig(scheme="full"), small_split(), seed=0), world()
    assert many.train.num_actions / many.num_known_users > 50
    settings = teacher_training(TrainConfig(loss="softmax"), model, many)
    assert settings.whole_users
    assert many.train.num_actions / settings.batch_size == pytest.approx(100, rel=0.01)
    few = small_split()
    assert few.train.num_actions / few.num_known_users < 50
    assert not teacher_training(TrainConfig(loss="softmax"), model, few).whole_users
    assert not teacher_training(TrainConfig(loss="bce"), model, many).whole_users


@pytest.mark.parametrize("backbone", ["gmf", "mlp"])
def test_a_full_table_by_the_fast_recipe_is_the_table_that_others_learn_from(backbone):
    split, training = small_split(), SHORT
    full, results = train_and_measure(DATA, ModelConfig(scheme="full", backbone=backbone), training, split)
    example = build_model(ModelConfig(scheme="dhe", budget="1/1 parameters", backbone=backbone), split, seed=0)
    teacher = train_teacher(example, split, training)
    assert all(torch.equal(value, full.state_dict()[name]) for name, value in teacher.model.state_dict().items())
    names = [stage["stage"] for stage in teacher.stages]
    assert [stage["stage"] for stage in results["stages"]] == names
    again, spared = train_and_measure(
        DATA, ModelConfig(scheme="full", backbone=backbone), training, split, teacher=teacher
    )
    assert all(torch.equal(value, full.state_dict()[name]) for name, value in again.state_dict().items())
    assert (spared["auc"], spared["epochs"], spared["best_epoch"]) == (
        results["auc"], results["epochs"], results["best_epoch"]
    )  # fmt: skip


def test_a_full_table_leaves_a_run_directory_although_its_teacher_is_at_hand(tmp_path):
    split, training = small_split(), SHORT
    config = ModelConfig(scheme="full")
    teacher = train_teacher(build_model(config, split, seed=0), split, training)
    model, _ = train_and_measure(DATA, config, training, split, teacher=teacher, out=tmp_path / "run")
    assert (tmp_path / "run" / "results.json").exists()
    assert all(torch.equal(value, teacher.model.state_dict()[name]) for name, value in model.state_dict().items())


def test_a_full_mlp_that_was_cut_off_goes_on_without_training_its_teacher_again(tmp_path):
    split, training = small_split(), SHORT
    config = ModelConfig(scheme="full", backbone="mlp")
    whole, expected = train_and_measure(DATA, config, training, split, out=tmp_path / "whole")

    class Crash(Exception):
        pass

    def crash(report):
        if (tmp_path / "parts" / "metrics.jsonl").exists():
            raise Crash

    with pytest.raises(Crash):
        train_and_measure(DATA, config, training, split, out=tmp_path / "parts", on_epoch=crash)
    notes = []
    parts, results = train_and_measure(
        DATA, config, training, split, out=tmp_path / "parts", resume=True, on_note=notes.append
    )
    assert not any("to learn from" in note for note in notes)
    assert all(torch.equal(value, whole.state_dict()[name]) for name, value in parts.state_dict().items())
    assert [stage["stage"] for stage in results["stages"]] == [stage["stage"] for stage in expected["stages"]]


def test_the_balanced_factors_give_the_table_s_own_scores():
    teacher = build_model(ModelConfig(scheme="full"), small_split(), seed=0)
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(parameter.numel()))
    targets = teacher.targets()
    users, items = targets["users"][0], targets["items"][0]
    expected = (teacher.users.table * teacher.weight) @ teacher.items.table.mT
    torch.testing.assert_close(users @ items.mT, expected, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(users.mT @ users, items.mT @ items, atol=1e-2, rtol=1e-3)


@pytest.mark.parametrize(("backbone", "kinds"), [("gmf", [GMF]), ("mlp", [GMF, MLP])])
def test_the_teacher_of_an_mlp_learns_from_a_gmf(backbone, kinds, monkeypatch, short_fits):
    lessons = []

    def note_lesson(model, split, config, *, teacher=None, **options):
        lessons.append((type(model), teacher if teacher is None else type(teacher)))
        return []

    monkeypatch.setattr(recipes, "train_model", note_lesson)
    model = build_model(ModelConfig(scheme="dhe", budget="1/1 parameters", backbone=backbone), small_split(), seed=0)
    train_by_recipe(model, small_split(), TrainConfig(epochs=1))
    assert lessons == list(zip([*kinds, kinds[-1]], [None, *kinds], strict=True))


@pytest.mark.parametrize("loss", ["softmax", "bpr"])
@pytest.mark.parametrize("backbone", ["gmf", "mlp"])
def test_every_stage_is_trained_by_the_loss_that_was_asked_for(loss, backbone, short_fits):
    config = replace(TRAINING, epochs=3, learning_rate=1e-3 if loss == "softmax" else 5e-3, loss=loss)
    _, results = train_and_measure(
        DATA, ModelConfig(scheme="dhe", budget="1/2 parameters", backbone=backbone), config, small_split()
    )
    trained = [stage for stage in results["stages"] if "settings" in stage]
    assert {stage["settings"]["loss"] for stage in trained} == {loss}
    assert results["auc"] > (results["popularity_auc"] if backbone == "gmf" else 0.55), (
        "three epochs are few for an MLP"
    )


def test_a_table_by_softmax_is_as_good_as_one_by_pairs_in_a_fraction_of_the_epochs():
    split = world()
    found = {}
    for loss in ("bce", "softmax"):
        _, found[loss] = train_and_measure(
            DATA, ModelConfig(scheme="full", embedding_dim=8), TrainConfig(loss=loss), split
        )
    for metric in ("auc", "ndcg@10"):
        assert found["softmax"][metric] > 0.95 * found["bce"][metric]
        assert found["softmax"][metric] > 1.1 * found["softmax"]["popularity"][metric]
    assert found["softmax"]["epochs"] < found["bce"]["epochs"] / 2


def test_after_a_softmax_the_scores_of_a_teacher_are_logits_of_it():
    split = small_split()
    model = build_model(ModelConfig(scheme="dhe", budget="1/1 parameters"), split, seed=0)
    teacher = train_teacher(model, split, replace(TRAINING, epochs=2, loss="softmax", temperature=0.4)).model
    lengths = teacher.prepare_users(teacher.users(torch.arange(split.num_known_users))).norm(dim=1)
    torch.testing.assert_close(lengths, torch.full_like(lengths, 1 / 0.4))


def test_cosines_leave_items_of_one_length_and_are_refused_where_no_table_is():
    split = small_split()
    config = replace(TRAINING, epochs=2, loss="softmax", similarity="cosine")
    model, _ = train_and_measure(DATA, ModelConfig(scheme="full"), config, split)
    lengths = model.items.table.norm(dim=1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths))
    with pytest.raises(ValueError, match="similarity='direction'"):
        train_and_measure(
            DATA, ModelConfig(scheme="hashing-trick", budget="1/2"), replace(config, recipe="paper"), split
        )


def test_the_epoch_that_is_kept_is_the_best_by_what_was_selected():
    split = small_split()
    reports = []
    train_and_measure(
        DATA,
        ModelConfig(scheme="full"),
        replace(TRAINING, epochs=6, select="ndcg@10"),
        split,
        on_epoch=reports.append,
    )
    values = [report.selected for report in reports]
    assert all(value is not None for value in values)
    kept = max(report.epoch for report in reports if report.is_best)
    assert values[kept] == max(values)
    assert [report.validation_auc for report in reports] != values


def test_unless_the_user_says_the_auc_decides_for_tables_and_the_first_ten_for_what_learns_lists():
    split = small_split()

    def measures_of(**settings):
        """For each stage, whether its epochs were judged by something else than the AUC."""
        reports, told = [], []
        training = replace(TRAINING, epochs=2, **settings)
        train_and_measure(
            DATA,
            ModelConfig(scheme="low-rank", budget="1/2"),
            training,
            split,
            on_note=told.append,
            on_epoch=reports.append,
        )
        kept = [note for note in told if note.startswith("kept")]
        return [report.selected is not None for report in reports], kept[-1]

    judged, kept = measures_of()
    assert judged == [False, False, True, True]  # two epochs of the table, two of lists
    assert "AUC" not in kept
    judged, kept = measures_of(select="auc")
    assert not any(judged)
    assert "AUC" in kept
