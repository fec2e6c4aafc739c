"""Clicks: rows with several columns and an answer, 0 or 1. From a file to examples that a click model learns from."""
