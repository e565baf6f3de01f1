"""What is searched for, as a query language of our own: nothing of a database's reaches a caller or comes from one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from fencepost_kit.values import value
from fencepost_mailbox.domain.refusals import InvalidQuery
from fencepost_mailbox.domain.values import LISTING_BODY_CHARACTERS_MAX

QUERY_BYTES_MAX: Final = 512
QUERY_TERMS_MAX: Final = 16
# How much stands before the first word that was found.
_LEAD_CHARACTERS: Final = LISTING_BODY_CHARACTERS_MAX // 4
_CUT: Final = "…"
# In longer texts accents are not folded, which would hold everybody up: a word is looked for as it was written.
_FOLDED_CHARACTERS_MAX: Final = 4096
# Scripts whose words stand without spaces, or with endings: each character is a word of the index.
_UNSPACED: Final = re.compile(
    "(["
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Myanmar, Khmer
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3041-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff"  # kana, Bopomofo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\uac00-\ud7a3"  # Hangul
    "])"
)
# Combining classes below are parts of letters (the dots of kana, viramas); those from here on are accents and points.
_ACCENT_CLASS_MIN: Final = 10


@value(frozen=True, kw_only=True, slots=True)
class Term:
    """A word or several in this order; `beginning`: the last one may go on."""

    text: str
    beginning: bool = False


def _has_word(text: str) -> bool:
    return any(unicodedata.category(character)[0] in "LN" for character in text)


def terms_of(query: str) -> tuple[Term, ...]:
    """Return what must occur: words, "words in this order", beginnings*.

    Raises:
        InvalidQuery: no word, an open quotation, over QUERY_BYTES_MAX bytes or QUERY_TERMS_MAX terms.
    """
    if len(query.encode("utf-8", "replace")) > QUERY_BYTES_MAX:
        raise InvalidQuery(f"a query has at most {QUERY_BYTES_MAX} bytes; nothing was read", hint="Use fewer words.")
    pieces = query.split('"')
    if len(pieces) % 2 == 0:
        raise InvalidQuery("a quotation in the query does not end; nothing was read", hint='Write "two words".')
    terms: list[Term] = []
    for place, piece in enumerate(pieces):
        if place % 2:
            terms.append(Term(text=piece))
            continue
        terms += [Term(text=word.rstrip("*"), beginning=word.endswith("*")) for word in piece.split()]
    worded = tuple(dict.fromkeys(term for term in terms if _has_word(term.text)))
    if not worded:
        raise InvalidQuery(
            "there is no word in the query; nothing was read", hint="Give letters or digits to look for."
        )
    if len(worded) > QUERY_TERMS_MAX:
        raise InvalidQuery(f"a query has at most {QUERY_TERMS_MAX} words; nothing was read", hint="Use fewer words.")
    return worded


def spread(text: str) -> str:
    """Return a text as the index is given it, and asked for it: in one form, without accents, its words apart.

    What of a text is a word is the index's to say, but where words stand without spaces each character is one, so that
    several are found wherever they follow each other.
    """
    if text.isascii():
        return text
    marks = unicodedata.normalize("NFKD", text.casefold())
    kept = "".join(one for one in marks if unicodedata.combining(one) < _ACCENT_CLASS_MIN)
    return _UNSPACED.sub(r" \1 ", unicodedata.normalize("NFC", kept))


def _plain(text: str) -> str:
    return "".join(one for one in unicodedata.normalize("NFKD", text).casefold() if not unicodedata.combining(one))


def _first_place(body: str, words: Sequence[str]) -> int:
    """Return where the first of the words stands in a text, by its characters; 0 where none is seen there."""
    exact = body.casefold()
    places = [exact.find(word.casefold()) for word in words] if len(exact) == len(body) else []
    if not any(place >= 0 for place in places) and len(body) <= _FOLDED_CHARACTERS_MAX:
        # Accents and ligatures change lengths: each character is folded on its own and remembers whose it was.
        folded = [(one, place) for place, character in enumerate(body) for one in _plain(character)]
        plain = "".join(one for one, _ in folded)
        places = [folded[found][1] for word in words if (found := plain.find(_plain(word))) >= 0]
    return min((place for place in places if place >= 0), default=0)


def excerpt(body: str, terms: Sequence[Term]) -> str:
    """Return at most LISTING_BODY_CHARACTERS_MAX characters of a text around the first word found in it."""
    if len(body) <= LISTING_BODY_CHARACTERS_MAX:
        return body
    start = max(0, _first_place(body, [term.text.split()[0] for term in terms]) - _LEAD_CHARACTERS)
    start = min(start, len(body) - LISTING_BODY_CHARACTERS_MAX + 1)
    room = LISTING_BODY_CHARACTERS_MAX - (start > 0)
    end = start + room
    if end < len(body):
        end -= 1
    return (_CUT if start else "") + body[start:end] + (_CUT if end < len(body) else "")
