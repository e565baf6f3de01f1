"""The directory on disk: a protocol, its tables, its migrations and the SQLite behind it."""
