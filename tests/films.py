"""A small world of films: whom a film pleases follows from its genre, and a person's taste is known.

Ids are no row numbers: they are far apart, and those of the films are strings if one likes. Some films have no row of
features, some rows belong to films that nobody has seen, and one row is repeated.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

GENRES = ["Comedy", "Horror|Thriller", "War", "Sport|Drama"]
PEOPLE, FILMS, UNSEEN = 200, 100, 8


@dataclass(frozen=True)
class World:
    """Actions, features of films and of people, and the taste that each has: a number of `GENRES`."""

    actions: pl.DataFrame
    films: pl.DataFrame
    people: pl.DataFrame
    genre_of: dict[int | str, int]
    taste_of: dict[int, int]

    @property
    def unseen(self) -> list[int | str]:
        """Films that have features and no actions."""
        return [*self.genre_of][FILMS:]


def world(*, strings: bool = False, seed: int = 0) -> World:
    """The same for everyone who asks with the same seed."""
    draw = np.random.default_rng(seed)
    genre, taste = draw.integers(0, 4, FILMS + UNSEEN), draw.integers(0, 4, PEOPLE)
    film_ids = [2**40 + 977 * place for place in draw.permutation(FILMS + UNSEEN)]
    films = [f"tt{id}" for id in film_ids] if strings else film_ids
    people = [7 * place - 300 for place in draw.permutation(PEOPLE)]
    users, items = [], []
    for person in range(PEOPLE):
        likes = np.where(genre[:FILMS] == taste[person], 20.0, 1.0)
        chosen = draw.choice(FILMS, 15, replace=False, p=likes / likes.sum())
        users += [people[person]] * 15
        items += [films[place] for place in chosen]
    described = pl.DataFrame(
        {
            "item_id": films,
            "genres": [GENRES[own] for own in genre],
            "year": (1950 + draw.integers(0, 70, len(films))).tolist(),
            "title": [f"Film {place}" for place in range(len(films))],
        }
    )
    described = pl.concat([described[:3], described[6:]])  # three films of which nothing is known
    described = pl.concat([described, described[4:5]])
    return World(
        pl.DataFrame({"user_id": users, "item_id": items, "timestamp": draw.integers(0, 10**9, len(users))}),
        described,
        pl.DataFrame(
            {"user_id": people, "taste": [f"likes {own}" for own in taste], "age": draw.integers(9, 90, PEOPLE)}
        ),
        dict(zip(films, genre.tolist(), strict=True)),
        dict(zip(people, taste.tolist(), strict=True)),
    )
