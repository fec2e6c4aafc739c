"""The examples do what they say, as they stand."""

import json
import re

import pytest

from tests.documents import ROOT

NOTEBOOK = ROOT / "examples" / "quickstart.ipynb"


def code_cells() -> list[dict]:
    return [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_goes_from_a_frame_to_recommendations_that_fit(tmp_path, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib", reason="pip install 'tableless[cli]'")
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    done: dict = {}
    for cell in code_cells():
        exec("".join(cell["source"]), done)
    done["plt"].close("all")
    auc = {row["scheme"]: row["auc"] for row in done["rows"]}
    assert done["fitting"] > 0.9
    assert done["results"]["auc"] > done["results"]["popularity"]["auc"] + 0.1
    assert auc["dhe"] > auc["full"] - 0.03
    assert (tmp_path / "runs" / "films" / "model.safetensors").exists()


def test_the_notebook_is_kept_with_its_pictures_and_without_traces_of_a_machine():
    outputs = [output for cell in code_cells() for output in cell["outputs"]]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3
    assert all(cell["outputs"] for cell in code_cells()), "it was run as a whole"
    assert [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"] == []
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert len(text) < 300_000
    assert re.findall(r"(?<![\w/.])/(?:home|root|tmp|work|Users|usr|opt)/", text) == []


def test_a_plain_model_keeps_its_accuracy_when_its_tables_are_replaced():
    from examples import replace_nn_embedding

    auc = replace_nn_embedding.main()
    assert auc["tables"] > 0.8
    assert auc["replaced"] > auc["tables"] - 0.02
    assert auc["trained on"] > auc["tables"] - 0.01


def test_a_model_of_several_features_and_bags_learns():
    from examples import dlrm_with_bags

    losses = dlrm_with_bags.main()
    assert losses[0] > 0.68
    assert losses[-1] < 0.59


def test_a_trained_table_becomes_a_network_of_its_size_with_little_loss():
    from examples import convert_a_table

    lost = convert_a_table.main()
    assert lost["1/1"] < 0.1
    assert lost["1/1"] < lost["1/2"] < 0.4


def test_two_towers_find_more_than_popularity_does():
    pytest.importorskip("faiss", reason="pip install 'tableless[serve]'")
    from examples import two_tower_retrieval

    recall = two_tower_retrieval.main()
    assert 1.3 * recall["popularity"] < recall["two towers"] < recall["best possible"]


def test_on_a_stream_shared_rows_learn_faster_at_first_and_deep_hashes_better_in_the_end():
    from examples import online_learning

    auc = online_learning.main()
    assert auc["hashing trick"][0] > auc["deep hash"][0]
    assert auc["deep hash"][-1] > auc["hashing trick"][-1] + 0.02
    assert auc["deep hash, told topics"][-1] > auc["deep hash"][-1] + 0.04
