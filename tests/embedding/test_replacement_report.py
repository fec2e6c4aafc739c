"""What `replace_embeddings` says: what it left alone and why, what still holds old tables, and what it would do."""

import pytest
import torch
from torch import nn

from tableless import LeftAlone, Replacements
from tableless.embedding import replacement
from tableless.embedding.budget import in_units
from tableless.embedding.replacement import replace_embeddings

# Most tables here are noise, which is a poor fit by intent.
pytestmark = pytest.mark.filterwarnings("ignore::tableless.embedding.PoorFitWarning")

ROWS, DIM = 300, 8
QUICK = {"budget": "1/4 parameters", "min_rows": 100, "scheme": "low-rank"}


class Wide(nn.Module):
    """A model as deepctr-torch builds them: linear terms, and lists of what is to be regularised."""

    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(ROWS, DIM)
        self.days = nn.Embedding(7, DIM)
        self.linear = nn.Embedding(ROWS, 1)
        self.factors = nn.Parameter(torch.randn(ROWS, 4))
        self.more = nn.ParameterList([torch.randn(ROWS, 4)])
        self.output = nn.Linear(DIM, ROWS)  # a large weight, but no table

    def forward(self, ids):
        return self.output(self.items(ids))


def left_alone(tables):
    return {table.name: table.reason for table in tables.left_alone}


def test_the_result_says_what_was_left_alone_and_why():
    tables = replace_embeddings(Wide(), exclude=["output"], **QUICK)
    assert isinstance(tables, Replacements)
    assert [table.name for table in tables] == ["items"]
    reasons = left_alone(tables)
    assert list(reasons) == ["days", "linear", "factors", "more.0"]
    assert reasons["days"] == "it has 7 rows, fewer than min_rows=100"
    assert "one column" in reasons["linear"]
    assert "bare parameter of 300 rows" in reasons["factors"]
    assert "bare parameter of 300 rows" in reasons["more.0"]
    text = str(tables)
    (items,) = tables
    assert f"items: 300 × 8, 9.60 KB → {in_units(items.bytes_after)} (2,400 → 308 parameters), " in text
    assert (items.bytes_before, items.parameters_after) == (9600, 300 + 8)
    assert 308 * 4 <= items.bytes_after < 600 * 4
    assert all(f"{name}: {reason}" in text for name, reason in reasons.items())


def test_what_is_excluded_is_named_and_schemes_are_no_bare_parameters():
    model = Wide()
    assert left_alone(replace_embeddings(model, exclude=["items", "linear"], dry_run=True, **QUICK))["items"] == (
        "exclude names it"
    )
    replace_embeddings(model, **QUICK)
    with pytest.warns(UserWarning, match="no table was replaced"):
        again = left_alone(replace_embeddings(model, **QUICK))
    assert list(again) == ["items", "days", "linear", "factors", "more.0"]
    assert again["items"] == "it was replaced before"


def test_if_nothing_is_replaced_a_warning_says_why():
    with pytest.warns(UserWarning, match=r"no table was replaced \(0: it has 300 rows, fewer than min_rows=10000\)"):
        assert replace_embeddings(nn.Sequential(nn.Embedding(ROWS, DIM))) == []
    with pytest.warns(UserWarning, match="no nn.Embedding and no nn.EmbeddingBag"):
        tables = replace_embeddings(nn.Linear(2, 2))
    assert str(tables) == "no table is replaced"
    with pytest.warns(UserWarning, match="0: it has 7 rows.*4: it has 7 rows.*; and 3 more"):
        replace_embeddings(nn.Sequential(*(nn.Embedding(7, DIM) for _ in range(8))))


def test_a_table_of_one_column_is_left_as_it_is():
    model = nn.Sequential(nn.Embedding(ROWS, DIM), nn.EmbeddingBag(ROWS, 1))
    linear = model[1]
    assert [table.name for table in replace_embeddings(model, **QUICK)] == ["0"]
    assert model[1] is linear


def test_lists_and_optimizers_of_the_model_that_hold_old_tables_are_named():
    model = Wide()
    model.regularization_weight = [([("items.weight", model.items.weight)], 0.0, 1e-5)]  # as deepctr-torch keeps them
    model.optim = torch.optim.SGD(model.parameters(), lr=0.1)
    model.output.tables = {"items": (model.items,)}
    model.unrelated = [model.days.weight, {"linear": model.linear}, [1, 2, "three"]]
    model.unrelated.append(model.unrelated)  # a list may hold itself
    with pytest.warns(UserWarning, match=r"still holding.*: regularization_weight, optim, output.tables\. "):
        tables = replace_embeddings(model, **QUICK)
    assert tables.still_referring == ["regularization_weight", "optim", "output.tables"]
    assert "still hold an old table:\n  regularization_weight" in str(tables)


def test_a_model_without_such_lists_gets_no_warning():
    assert replace_embeddings(Wide(), **QUICK).still_referring == []


@pytest.mark.parametrize("scheme", ["dhe", "low-rank", "head-and-tail"])
def test_a_dry_run_prints_the_plan_and_changes_nothing(scheme, capsys):
    model = Wide()
    before, state = list(model.modules()), torch.get_rng_state()
    plan = replace_embeddings(model, "1/2 parameters", min_rows=100, scheme=scheme, dry_run=True)
    assert list(model.modules()) == before
    assert torch.equal(torch.get_rng_state(), state)
    assert capsys.readouterr().out == f"{plan}\n"
    done = replace_embeddings(model, "1/2 parameters", min_rows=100, scheme=scheme, distil=False)
    assert [(table.names, table.bytes_after, table.parameters_after) for table in plan] == [
        (table.names, table.bytes_after, table.parameters_after) for table in done
    ]
    assert plan.left_alone == done.left_alone
    assert LeftAlone("days", "it has 7 rows, fewer than min_rows=100") in plan.left_alone


def test_a_table_on_the_meta_device_gets_a_sentence():
    model = Wide().to("meta")
    with pytest.raises(ValueError, match=r"'items' is on the meta device.*load the weights first.*distil=False"):
        replace_embeddings(model, **QUICK)
    assert len(replace_embeddings(model, dry_run=True, **QUICK)) == 1


class Trainer:
    """An object of a library that is no module, but holds one."""

    def __init__(self):
        self.epochs, self.model = 3, Wide()


def test_an_object_that_is_no_module_gets_a_sentence():
    with pytest.raises(TypeError, match=r"of type Trainer, which is no torch.nn.Module; its attribute 'model' is one"):
        replace_embeddings(Trainer())
    with pytest.raises(TypeError, match=r"of type list, which is no torch.nn.Module$"):
        replace_embeddings([])


def test_an_unknown_scheme_gets_the_nearest_name():
    with pytest.raises(ValueError, match=r"no scheme is called 'lowrank'.*did you mean 'low-rank'\?"):
        replace_embeddings(Wide(), scheme="lowrank")
    with pytest.raises(ValueError, match=r"no scheme is called 'xyz'; known are [^?]*$"):
        replace_embeddings(Wide(), scheme="xyz")


def test_progress_is_handed_on_only_if_it_is_given(monkeypatch):
    given = []
    fit = replacement.fit_to_rows

    def record(rows, scheme, *, visits, seed, **more):
        given.append(more)
        return fit(rows, scheme, visits=visits, seed=seed)

    monkeypatch.setattr(replacement, "fit_to_rows", record)
    replace_embeddings(Wide(), **QUICK)
    replace_embeddings(Wide(), progress=print, **QUICK)
    assert given == [{}, {"progress": print}]
