"""The tables of supervised tasks, in the same database and the same transactions as the records."""
