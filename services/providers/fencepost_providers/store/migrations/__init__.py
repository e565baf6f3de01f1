"""Numbered steps of the schema: NNNN_name.sql, applied in order, never edited after a release."""
