"""Learning from a stream: every batch is first predicted, then learned from, and new ids come all the time.

    python -m examples.online_learning

Articles live for a while and are never seen again; readers stay. Nobody numbers any of them: ids are whatever the
sender says. Three models of one size compete: tables in which ids share rows (the hashing trick), deep hash embeddings,
and deep hash embeddings that are told the topics of an article when it appears.

An illustration, not evidence: rates and sizes were chosen on this very stream. In one whose articles have nothing in
common (no topics) the hashing trick came out ahead: what a network learned of one article says nothing of the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tableless import DeepHashEmbedding, EmbeddingScheme, SideFeatures, to_ids
from tableless.embedding.tables import HashingTrick

READERS, ARTICLES_AT_ONCE, DIM, BATCH, BUDGET = 400, 40, 8, 256, 8_000
TOPICS = ["arts", "food", "health", "money", "music", "science", "sport", "travel"]


@dataclass(frozen=True)
class Events:
    """A batch of articles shown to readers, and one article that has just appeared."""

    readers: list[str]
    articles: list[str]
    clicks: Tensor
    new_article: str
    its_topics: list[str]


def stream(batches: int) -> Iterator[Events]:
    """With every batch one article leaves and a new one comes. Its style is mostly that of its topics."""
    generator = torch.Generator().manual_seed(0)
    tastes, topics = (torch.randn(count, 3, generator=generator) for count in (READERS, len(TOPICS)))
    styles = torch.randn(ARTICLES_AT_ONCE, 3, generator=generator)
    names = [f"article {number}" for number in range(ARTICLES_AT_ONCE)]
    for number in range(batches):
        place = number % ARTICLES_AT_ONCE
        two = torch.randperm(len(TOPICS), generator=generator)[:2]
        names[place] = f"article {ARTICLES_AT_ONCE + number}"
        styles[place] = topics[two].mean(0) + 0.3 * torch.randn(3, generator=generator)
        reader = torch.randint(READERS, (BATCH,), generator=generator)
        shown = torch.randint(ARTICLES_AT_ONCE, (BATCH,), generator=generator)
        chances = torch.sigmoid(1.5 * (tastes[reader] * styles[shown]).sum(-1))
        yield Events(
            readers=[f"reader {row}" for row in reader.tolist()],
            articles=[names[row] for row in shown.tolist()],
            clicks=torch.bernoulli(chances, generator=generator),
            new_article=names[place],
            its_topics=[TOPICS[topic] for topic in two.tolist()],
        )


def learn(readers: EmbeddingScheme, articles: EmbeddingScheme, *, batches: int, rate: float) -> list[float]:
    """The AUC of each batch, which is predicted before the model learns from it."""
    optimizer = torch.optim.Adam(nn.ModuleList([readers, articles]).parameters(), rate)
    measured = []
    for events in stream(batches):
        if isinstance(articles, DeepHashEmbedding) and articles.side_features is not None:
            articles.side_features.add([events.new_article], [events.its_topics])
        scores = (readers(to_ids(events.readers)) * articles(to_ids(events.articles))).sum(-1)
        measured.append(auc(scores.detach(), events.clicks))
        optimizer.zero_grad()
        torch.autograd.backward(F.binary_cross_entropy_with_logits(scores, events.clicks))
        optimizer.step()
    return measured


def auc(scores: Tensor, labels: Tensor) -> float:
    """The chance that a click has a higher score than an article that was not clicked; a tie counts half."""
    clicked, other = scores[labels == 1][:, None], scores[labels == 0]
    return float(((clicked > other).double() + (clicked == other).double() / 2).mean())


def main() -> dict[str, list[float]]:
    """The AUC of each model in each quarter of the stream."""
    batches = 800
    # Budgets are in parameters, because nobody knows how many ids will come. Each kind has the best rate of several.
    size: dict[str, Any] = {"budget": BUDGET // 2, "embedding_dim": DIM, "vocab_size": 1}
    network: dict[str, Any] = {**size, "num_hashes": 32, "depth": 2}
    told = SideFeatures(tags=TOPICS)
    competitors: dict[str, tuple[EmbeddingScheme, EmbeddingScheme, float]] = {
        "hashing trick": (HashingTrick.from_budget(**size), HashingTrick.from_budget(**size, seed=1), 0.03),
        "deep hash": (
            DeepHashEmbedding.from_budget(**network),
            DeepHashEmbedding.from_budget(**network, seed=1),
            0.01,
        ),
        "deep hash, told topics": (
            DeepHashEmbedding.from_budget(**network),
            DeepHashEmbedding.from_budget(**network, seed=1, side_features=told),
            0.01,
        ),
    }
    results = {}
    print(f"{'AUC in each quarter':<24} {'first':>7} {'second':>7} {'third':>7} {'fourth':>7}")
    for name, (readers, articles, rate) in competitors.items():
        measured = learn(readers, articles, batches=batches, rate=rate)
        results[name] = [mean(measured[start : start + batches // 4]) for start in range(0, batches, batches // 4)]
        print(f"{name:<24} " + " ".join(f"{value:>7.3f}" for value in results[name]))
    return results


if __name__ == "__main__":
    main()
