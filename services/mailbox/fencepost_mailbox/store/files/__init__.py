"""File reservations as they are stored: the table, statements, and the store's part for them."""
