"""Run directories with a model in them that was never trained: as good for exporting, and made in a moment."""

from pathlib import Path

import numpy as np
import torch

from tableless import SCHEMES, SideFeatures
from tableless.embedding.layers import BatchNorm
from tableless.recommender.models import BACKBONES, MLP, Recommender, describe_recommender
from tableless.recommender.run_directory import RunDirectory, item_list

ROWS, DIM = 300, 8
ANYWHERE = torch.cat(
    [
        torch.tensor([0, 1, -1, 2**31, 2**63 - 1, -(2**63)]),
        torch.randint(-(2**63), 2**63 - 1, (394,), generator=torch.Generator().manual_seed(7)),
    ]
)
"""400 ids over the whole int64 range."""

_NETWORK = {"num_hashes": 16, "depth": 2}
OPTIONS = {
    "dhe": {**_NETWORK, "normalization": "none", "num_experts": 1},
    "dhe, batch norm": {**_NETWORK, "normalization": "batch", "num_experts": 1},
    "dhe, experts": {**_NETWORK, "normalization": "batch", "num_experts": 2},
    "dhe, side features": {**_NETWORK, "architecture": "residual", "num_experts": 1},
    "dhe, random fourier": {**_NETWORK, "encoding": "random-fourier", "num_experts": 1},
    "dhe, binary": {**_NETWORK, "encoding": "binary", "num_experts": 1},
    "head-and-tail": {**_NETWORK, "num_experts": 2},
}
"""Ways to build a scheme, by the name of the scheme and what is special about it."""


def make_scheme(name: str, seed: int):
    scheme, options = name.split(",")[0], dict(OPTIONS.get(name, {}))
    if "side features" in name:
        options["side_features"] = SideFeatures.from_matrix(ANYWHERE[:50], torch.arange(150.0).view(50, 3) / 150)
    made = SCHEMES[scheme].from_budget("1/1 parameters", embedding_dim=DIM, vocab_size=ROWS, seed=seed, **options)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in made.modules():
            if isinstance(module, BatchNorm):  # statistics other than those it starts with, which fold to nothing
                for tensor in (module.weight, module.bias, module.running_mean, module.running_var):
                    tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
    return made


def make_run(
    directory: Path,
    *,
    users: str,
    items: str,
    backbone: str,
    item_features: bool = False,
    weights: float | None = None,
) -> Recommender:
    """Write a run directory; returns its model, ready to score. `weights` is put in the place of all of them.

    Users and items 1000, 1001, … are listed.
    """
    schemes = {"users": make_scheme(users, seed=3), "items": make_scheme(items, seed=4)}
    if item_features:
        features = SideFeatures.from_matrix(ANYWHERE[:40], torch.ones(40, 2))
        model: Recommender = MLP(**schemes, item_features=features, seed=5)
    else:
        model = BACKBONES[backbone](**schemes, seed=5)
    for parameter in model.parameters() if weights is not None else ():
        torch.nn.init.constant_(parameter, weights)
    config = {"model": describe_recommender(model), "kinds": {"user": "integer", "item": "string"}}
    items_listed = item_list(np.arange(1000, 1000 + ROWS))
    user_ids = items_listed["id"].to_numpy()
    RunDirectory(directory).write(config, model.state_dict(), items=items_listed, user_ids=user_ids)
    return model.eval()


def ids_for(scheme) -> torch.Tensor:
    """400 ids that the scheme answers for: any, or rows of a closed one."""
    return ANYWHERE if scheme.open_vocabulary else torch.arange(len(ANYWHERE)) % ROWS
