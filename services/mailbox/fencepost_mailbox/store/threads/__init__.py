"""Attributes and words of records in the store."""
