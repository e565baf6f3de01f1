"""Generated configuration files: any value, written with any layout, comments and line ends."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=6)
KEYS = st.one_of(st.sampled_from(["a", "b", "mcp", "mcpServers", "permission", "other"]), WORDS)
SCALARS = st.one_of(
    WORDS, st.integers(-(10**6), 10**6), st.booleans(), st.none(), st.floats(-1e6, 1e6, allow_nan=False)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)
COMMENTS = ['// with " a quote, { and ,', "/* in line */", "/* of two\n lines */"]


@st.composite
def jsonc(draw: st.DrawFn, values: st.SearchStrategy[Any] = OBJECTS) -> str:
    """A text that reads as one of `values`."""
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    strict = draw(st.booleans())
    dense = draw(st.booleans())

    def gap() -> str:
        if dense:
            return ""
        choices = ["", " ", "\n", "\n  ", "\n\t", " \n"]
        piece = draw(st.sampled_from(choices if strict else choices + COMMENTS))
        return piece + "\n" if piece.startswith("//") else piece

    def written(value: Any) -> str:
        if isinstance(value, dict):
            pieces = [f"{json.dumps(key)}{gap()}:{gap()}{written(inner)}" for key, inner in value.items()]
            opening, closing = "{}"
        elif isinstance(value, list):
            pieces = [written(inner) for inner in value]
            opening, closing = "[]"
        else:
            return json.dumps(value, ensure_ascii=draw(st.booleans()))
        text = opening + gap()
        for at, piece in enumerate(pieces):
            last = at == len(pieces) - 1
            comma = "," if not last or (not strict and draw(st.booleans())) else ""
            text += f"{piece}{gap()}{comma}{gap()}"
        return text + closing

    text = gap() + written(draw(values)) + gap()
    return text.replace("\n", newline)


TOML_KEYS = st.sampled_from(["model", "approval_policy", "a b", "tools", "ä", "mcp_servers", "other", "x"])
TOML_SCALARS = st.one_of(WORDS, st.integers(-(10**6), 10**6), st.booleans(), st.floats(-1e6, 1e6, allow_nan=False))


@st.composite
def toml(draw: st.DrawFn) -> str:
    """A text that reads as TOML, with plain keys, tables, inline tables, servers of others, and comments."""
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    lines: list[str] = []

    def noise() -> None:
        lines.extend(draw(st.lists(st.sampled_from(["", "# a comment = [1]", "  # indented"]), max_size=2)))

    def pairs() -> None:
        for key in draw(st.lists(TOML_KEYS.filter(lambda key: key != "mcp_servers"), max_size=3, unique=True)):
            noise()
            value = draw(st.one_of(TOML_SCALARS, st.lists(TOML_SCALARS, max_size=2)))
            comment = draw(st.sampled_from(["", " # why"]))
            lines.append(f"{json.dumps(key, ensure_ascii=False)} = {toml_value(value)}{comment}")

    pairs()
    for name in draw(st.lists(st.sampled_from(["one", "two", "mcp_servers.peer", "mcp_servers.q"]), unique=True)):
        noise()
        lines.append(f"[{name}]")
        pairs()
    noise()
    text = newline.join(lines)
    return text + draw(st.sampled_from(["", newline])) if text else text


def toml_value(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(inner) for inner in value) + "]"
    if isinstance(value, str):
        # JSON escapes what TOML escapes, but for the character that only TOML forbids.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)
