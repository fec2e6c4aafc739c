"""Small runs that are as training leaves them, and applications around them."""

import threading

from tableless import SCHEMES, DeepHashEmbedding
from tableless.recommender.models import GMF, describe_recommender
from tableless.recommender.run_directory import RunDirectory, item_list
from tableless.serving.http.app import build_app
from tableless.serving.model import TrainedModel
from tableless.serving.settings import ServerSettings

NUM_ITEMS, DIM = 12, 4


def write_run(directory, *, seed=0, kind="integer", scheme="dhe"):
    """Items 0 … 11, or "item 0" …; the weights that training would start from."""
    if scheme == "dhe":
        users, items = (DeepHashEmbedding(DIM, width=8, num_hashes=8, depth=2, seed=seed + side) for side in range(2))
    else:
        users, items = (
            SCHEMES[scheme].from_budget(10_000, embedding_dim=DIM, vocab_size=NUM_ITEMS, seed=seed) for _ in range(2)
        )
    model = GMF(users=users, items=items)
    config = {"model": describe_recommender(model), "kinds": {"user": kind, "item": kind}}
    names = [f"item {number}" if kind == "string" else number for number in range(NUM_ITEMS)]
    items = item_list(names, actions=range(NUM_ITEMS))
    RunDirectory(directory).write(config, model.state_dict(), items=items, user_ids=items["id"].to_numpy())
    return directory


def load(directory):
    return TrainedModel.from_pretrained(directory, hot_ids=4)


def app_for(directory, **settings):
    return build_app(directory, load, ServerSettings(**settings))


class HeldModel(TrainedModel):
    """Answers only when `go` is set; says so when it has been asked."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.go, self.was_asked, self.batches = threading.Event(), threading.Event(), []
        self.vectors = {side: _HeldVectors(self, vectors) for side, vectors in self.vectors.items()}


class _HeldVectors:
    def __init__(self, model, vectors):
        self._model, self._vectors, self.fast = model, vectors, vectors.fast

    def __call__(self, ids):
        self._model.batches.append(ids.tolist())
        self._model.was_asked.set()
        assert self._model.go.wait(timeout=20)
        return self._vectors(ids)
