"""Numbered steps of the schema, each a file NNNN_name.sql that is never changed once released."""
