"""What can be wrong with the text of a configuration."""

from __future__ import annotations


class NotReadable(ValueError):
    """The text is not what it should be; says what is wrong and where."""


class NotEditable(ValueError):
    """The text can be read, and the edit cannot be made in it safely."""
