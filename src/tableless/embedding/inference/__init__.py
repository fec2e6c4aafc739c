"""The network of a trained scheme as it answers requests, in float32 or int8, with batch norm folded into weights."""
