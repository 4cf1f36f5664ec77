"""Rows of the keyed count into files and tables: rates, freshness, and how many files there are."""
