"""Logs: one JSON line an event, and never a body or a token."""

from __future__ import annotations

import io
import json
import logging
import sqlite3
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_kit import logs
from fencepost_kit.identity import mint_token
from fencepost_kit.logs import FIELD_CHARS_MAX, FIELDS_MAX, WITHHELD, WITHHELD_FIELDS
from fencepost_kit.refusal import Malformed

Logged = Callable[[], list[dict[str, Any]]]

journal = logs.get("fencepost_testing")


def test_an_event_is_one_line_with_its_time_level_service_and_fields(logged: Logged) -> None:
    journal.info("receipt_given", record=bytes(range(16)), sequence=7, late=False)
    (line,) = logged()
    assert line.pop("ts").endswith("Z")
    assert line == {
        "level": "info",
        "service": "testing",
        "event": "receipt_given",
        "record": "000102030405060708090a0b0c0d0e0f",
        "sequence": 7,
        "late": False,
    }


@pytest.mark.requirement("kit.no-body-or-token-in-a-log")
@pytest.mark.parametrize("name", sorted(WITHHELD_FIELDS))
def test_fields_that_hold_bodies_or_secrets_are_withheld(logged: Logged, name: str) -> None:
    journal.error("bad", **{name: "the plan for Tuesday"})
    (line,) = logged()
    assert line[name] == WITHHELD


@pytest.mark.requirement("kit.no-body-or-token-in-a-log")
def test_a_token_is_masked_wherever_it_stands(logged: Logged) -> None:
    token = mint_token()
    journal.info("odd", note=f"got {token}!", many=[token])
    journal.exception("worse", RuntimeError(f"with {token}"))
    logging.getLogger("grpc.something").warning("header %s", token)
    text = json.dumps(logged())
    assert token not in text
    assert text.count("fp_(withheld)") == 4


@pytest.mark.requirement("kit.no-body-or-token-in-a-log")
@pytest.mark.parametrize("kind", [ValueError, KeyError, LookupError, Exception])
def test_the_message_of_an_error_that_may_quote_data_is_not_written(logged: Logged, kind: type[Exception]) -> None:
    try:
        raise kind("the plan for Tuesday")
    except kind as error:
        journal.exception("failed", error)
    (line,) = logged()
    assert line["error"] == kind.__name__
    assert "Tuesday" not in json.dumps(line)
    assert line["frames"][-1].endswith("test_the_message_of_an_error_that_may_quote_data_is_not_written")


def test_unicode_errors_quote_data_and_are_not_written(logged: Logged) -> None:
    try:
        b"\xffplan".decode()
    except UnicodeDecodeError as error:
        journal.exception("failed", error)
    assert logged()[0]["error"] == "UnicodeDecodeError"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(28, "No space left on device"), "OSError: [Errno 28] No space left on device"),
        (sqlite3.OperationalError("database is locked"), "sqlite3.OperationalError: database is locked"),
        (TypeError("takes no arguments"), "TypeError: takes no arguments"),
        (Malformed("bad"), "fencepost_kit.refusal.Malformed: bad"),
    ],
)
def test_the_message_of_an_error_about_machine_or_code_is_written(logged: Logged, error: Exception, text: str) -> None:
    journal.exception("failed", error)
    assert logged()[0]["error"] == text


def test_the_members_of_a_group_are_named_and_what_led_to_them(logged: Logged) -> None:
    def failing(error: Exception, cause: Exception) -> Exception:
        try:
            raise error from cause
        except type(error) as raised:
            return raised

    first = failing(TypeError("one"), OSError(5, "Input/output error"))
    journal.exception("failed", ExceptionGroup("several", [first, TypeError("two")]))
    (line,) = logged()
    assert [cause["error"] for cause in line["causes"]] == [
        "TypeError: one",
        "TypeError: two",
        "OSError: [Errno 5] Input/output error",
    ]


def test_the_causes_of_an_error_follow_it(logged: Logged) -> None:
    try:
        try:
            raise OSError(5, "Input/output error")
        except OSError as cause:
            raise RuntimeError("the writer stopped") from cause
    except RuntimeError as error:
        journal.exception("failed", error)
    (line,) = logged()
    assert [cause["error"] for cause in line["causes"]] == ["OSError: [Errno 5] Input/output error"]


def test_lines_of_other_libraries_and_warnings_are_json_too(logged: Logged) -> None:
    logging.getLogger("somebody").error("one\ntwo")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    first, second = logged()
    assert (first["event"], first["logger"], first["message"]) == ("log", "somebody", "one\ntwo")
    assert second["logger"] == "py.warnings"


def test_what_is_below_the_level_costs_no_line() -> None:
    root, grpc_log = logging.getLogger(), logging.getLogger("grpc")
    before = list(root.handlers), root.level, grpc_log.level, logging.raiseExceptions
    stream = io.StringIO()
    try:
        logs.configure("testing", "warning", stream=stream)
        journal.info("quiet")
        journal.warning("loud")
    finally:
        root.handlers[:], root.level, grpc_log.level, logging.raiseExceptions = before
        logging.captureWarnings(capture=False)
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["loud"]


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="level must be one of"):
        logs.configure("testing", "verbose")


def test_fields_cannot_take_the_place_of_the_lines_own(logged: Logged) -> None:
    journal.info("real", level="forged", service="forged", ts="forged", event_="kept")
    (line,) = logged()
    assert (line["level"], line["service"], line["event"]) == ("info", "testing", "real")
    assert (line["level_"], line["service_"], line["event_"]) == ("forged", "forged", "kept")


@pytest.mark.parametrize(("count", "kept"), [(FIELDS_MAX, FIELDS_MAX), (FIELDS_MAX + 1, FIELDS_MAX)])
def test_a_line_has_at_most_its_number_of_fields(logged: Logged, count: int, kept: int) -> None:
    journal.info("wide", **{f"field{number}": number for number in range(count)})
    assert sum(name.startswith("field") for name in logged()[0]) == kept


@pytest.mark.parametrize("length", [FIELD_CHARS_MAX, FIELD_CHARS_MAX + 1])
def test_a_long_field_is_cut_and_says_its_length(logged: Logged, length: int) -> None:
    journal.info("long", note="x" * length)
    note = logged()[0]["note"]
    assert (note == "x" * length) == (length <= FIELD_CHARS_MAX)
    assert length <= FIELD_CHARS_MAX or note.endswith(f"... ({length} characters)")


@given(value=st.text() | st.binary() | st.integers() | st.floats() | st.none() | st.lists(st.text()))
def test_any_value_becomes_one_line_of_json(value: Any) -> None:
    formatter = logs.JsonLines("testing")
    record = logging.LogRecord("a", logging.INFO, "f", 1, "%s", ("event",), None)
    record.fencepost_fields = {"value": value}
    line = formatter.format(record)
    assert "\n" not in line
    assert "\r" not in line
    assert json.loads(line)["event"] == "event"
