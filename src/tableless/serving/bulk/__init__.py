"""Vectors for any number of ids, from files to files."""
