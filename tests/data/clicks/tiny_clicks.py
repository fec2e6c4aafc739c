"""A log of clicks that can show faults: ids that are no row numbers, strings, lists, numbers, missing values."""

import numpy as np
import polars as pl

COLUMNS = "user,item,device,tags:|,price"


def tiny_clicks(count=1500, *, seed=0):
    """Some users and items are clicked far more often than others, and everything more on a television."""
    random = np.random.default_rng(seed)
    users, items = (random.integers(0, 60, count) ** 2 // 60, random.integers(0, 40, count))
    of_users, of_items = random.normal(0, 1.5, 60), random.normal(0, 1.5, 40)
    device = random.choice(["phone", "tv", "pc", None], count)
    logits = of_users[users] + of_items[items] + 1.5 * (device == "tv")
    return pl.DataFrame(
        {
            "user": users * 7919 - 11,
            "item": [f"item {item}" for item in items],
            "device": pl.Series(device.tolist(), dtype=pl.String),
            "tags": ["|".join({f"t{item % 5}", f"t{item % 3}"}) if item % 7 else "" for item in items],
            "price": pl.Series([None if row % 13 == 0 else 1.5 + row % 9 for row in range(count)]),
            "clicked": (random.random(count) < 1 / (1 + np.exp(-logits))).astype(np.int64),
        }
    )
