"""Click models: several columns in, one vector for each, and out of all vectors together how likely a click is."""
