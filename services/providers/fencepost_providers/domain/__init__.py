"""What the carrier decides, without doing it: values, tables and pure functions."""
