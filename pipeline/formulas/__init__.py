"""Tier 2 of extraction: the formulas of a page as TeX, whatever markup they came in."""
