"""Shared context and project memory as they are stored: tables, statements, and the store's part for them."""
