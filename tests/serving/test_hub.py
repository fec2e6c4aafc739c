import json
import sys

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError

import tableless
from tableless.embedding.budget import in_units
from tableless.serving.model import TrainedModel


@pytest.fixture(scope="module")
def model(runs):
    return tableless.load(runs / "open")


def test_a_saved_model_gives_the_same_answers(model, runs, tmp_path):
    model.save_pretrained(tmp_path / "new" / "copy")
    again = TrainedModel.from_pretrained(tmp_path / "new" / "copy")
    assert again.recommend("user-3") == model.recommend("user-3")
    assert torch.equal(again.embed(["item-7"]), model.embed(["item-7"]))
    closed = tableless.load(runs / "closed")
    closed.save_pretrained(tmp_path / "closed")
    assert tableless.load(tmp_path / "closed").recommend(3) == closed.recommend(3)


def test_only_files_that_cannot_hold_code_are_saved_and_none_half_written(model, tmp_path):
    (model.directory / "weights.pkl").write_bytes(b"no")
    model.save_pretrained(tmp_path)
    (model.directory / "weights.pkl").unlink()
    saved = {path.name for path in tmp_path.iterdir()}
    assert saved == {"README.md", "config.json", "items.parquet", "model.safetensors", "results.json"}


def test_saving_does_not_tell_where_the_data_was(model, tmp_path):
    model.save_pretrained(tmp_path)
    assert "/" in model.config["data"]["data"]
    assert json.loads((tmp_path / "config.json").read_text())["data"]["data"] == "ratings.csv"


def test_saving_does_not_tell_where_the_test_file_was(model, tmp_path):
    model.save_pretrained(tmp_path / "one")
    path = tmp_path / "one" / "config.json"
    config = json.loads(path.read_text())
    config["data"]["test"] = "/home/someone/given.csv"
    path.write_text(json.dumps(config))
    tableless.load(tmp_path / "one").save_pretrained(tmp_path / "two")
    assert json.loads((tmp_path / "two" / "config.json").read_text())["data"]["test"] == "given.csv"


def test_saving_to_its_own_directory_adds_the_card_and_keeps_the_rest(model, tmp_path):
    model.save_pretrained(tmp_path)
    copy = tableless.load(tmp_path)
    (tmp_path / "README.md").unlink()
    copy.save_pretrained(tmp_path)
    assert (tmp_path / "README.md").exists()
    assert tableless.load(tmp_path).recommend("user-3") == model.recommend("user-3")


def test_the_card_states_facts(runs, tmp_path):
    closed = tableless.load(runs / "closed")
    closed.save_pretrained(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: tableless\n")
    assert f"| its embeddings take | {in_units(closed.facts['bytes'])} |" in card
    assert "| full tables would take | 20.5 KB |" in card
    assert f"| bytes for each known id | {closed.facts['bytes_per_id']:.2f} |" in card
    assert f"| test AUC | {closed.facts['results']['auc']:.4f} |" in card
    assert "model.recommend(7)" in card


def test_a_model_is_fetched_from_the_hub_by_its_id(model, runs, monkeypatch):
    asked = {}

    def snapshot_download(repo_id, **options):
        asked.update(options, repo_id=repo_id)
        return str(runs / "open")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    fetched = TrainedModel.from_pretrained("someone/films", revision="v2")
    assert fetched.recommend("user-3") == model.recommend("user-3")
    assert (asked["repo_id"], asked["revision"]) == ("someone/films", "v2")
    assert not any("*" in pattern or "pkl" in pattern for pattern in asked["allow_patterns"])


def test_a_directory_is_never_looked_for_on_the_hub(runs, monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("asked the hub"))
    monkeypatch.chdir(runs.parent)
    assert tableless.load(f"{runs.name}/open").num_items == 120
    with pytest.raises(FileNotFoundError, match="holds no trained model"):
        tableless.load(tmp_path / "nothing")  # a Path
    with pytest.raises(FileNotFoundError, match="holds no trained model"):
        tableless.load("./nothing")


def test_what_the_hub_says_is_passed_on_in_one_line(monkeypatch):
    def snapshot_download(*_, **__):
        raise LocalEntryNotFoundError("no connection.\nTry again")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(FileNotFoundError, match=r"someone/films is no directory .* no connection\.$"):
        tableless.load("someone/films")


def test_pushing_uploads_what_saving_writes(model, monkeypatch):
    calls = []

    class FakeHub:
        def create_repo(self, repo_id, **options):
            calls.append(("create", repo_id, options))
            return f"https://hub.example/{repo_id}"

        def upload_folder(self, *, repo_id, folder_path, commit_message):
            calls.append(("upload", repo_id, tableless.load(folder_path).recommend("user-3")))

    monkeypatch.setattr(huggingface_hub, "HfApi", FakeHub)
    assert model.push_to_hub("someone/films", private=True) == "https://hub.example/someone/films"
    assert calls[0] == ("create", "someone/films", {"private": True, "exist_ok": True})
    assert calls[1] == ("upload", "someone/films", model.recommend("user-3"))


def test_without_the_extra_a_directory_works_and_the_hub_names_it(model, runs, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    model.save_pretrained(tmp_path)
    assert tableless.load(tmp_path).num_items == 120
    with pytest.raises(ImportError, match=r"pip install 'tableless\[hub\]'"):
        model.push_to_hub("someone/films")
    with pytest.raises(FileNotFoundError, match=r"pip install 'tableless\[hub\]'"):
        tableless.load("someone/films")
