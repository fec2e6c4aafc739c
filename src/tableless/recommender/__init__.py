"""Vectors → scores → a trained, measured model."""
