"""Lines of bounded length out of whatever pieces come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_providers.processes.child import End, Line, LineSplitter

LIMIT = 8


def split(*pieces: bytes, bytes_max: int = LIMIT) -> list[Line]:
    lines: list[Line] = []
    splitter = LineSplitter(bytes_max, lines.append)
    for piece in pieces:
        splitter.feed(piece)
    splitter.close()
    return lines


@pytest.mark.requirement("processes.output-never-blocks")
@given(texts=st.lists(st.binary(max_size=20).filter(lambda text: b"\n" not in text), max_size=8), cuts=st.data())
def test_lines_are_the_same_whatever_the_pieces_they_come_in(texts: list[bytes], cuts: st.DataObject) -> None:
    stream = b"".join(text + b"\n" for text in texts)
    places = sorted(cuts.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True)]
    expected = [Line(text=text[:LIMIT], bytes_cut=max(0, len(text) - LIMIT)) for text in texts]
    assert split(*pieces) == expected


@pytest.mark.requirement("processes.output-never-blocks")
@pytest.mark.parametrize(("size", "cut"), [(LIMIT, 0), (LIMIT + 1, 1)])
def test_a_line_is_cut_from_one_byte_over_the_limit(size: int, cut: int) -> None:
    assert split(b"x" * size + b"\n") == [Line(text=b"x" * LIMIT, bytes_cut=cut)]


def test_an_unfinished_last_line_is_a_line_and_an_empty_rest_is_none() -> None:
    assert split(b"a\nb") == [Line(text=b"a"), Line(text=b"b")]
    assert split(b"a\n") == [Line(text=b"a")]
    assert split(b"\n") == [Line(text=b"")]


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (End(exit_code=0), "ended with exit code 0"),
        (End(exit_code=3, tail="no"), "ended with exit code 3: no"),
        (End(exit_code=-9), "was ended by SIGKILL"),
        (End(exit_code=-250), "was ended by signal 250"),
        (End(exit_code=None), "was killed together with its guard"),
    ],
)
def test_an_end_says_how_it_was(end: End, words: str) -> None:
    assert str(end) == words
