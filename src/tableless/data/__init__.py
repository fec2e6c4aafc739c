"""Raw files → interactions → a split: what a recommender is trained and measured on."""
