"""Generated from fencepost_mailbox.store.files.statements by scripts/generate_sql.py: `make proto`. Do not edit."""

from typing import Final

AT_FOLDER: Final = """\
SELECT file_reservation.reservation_id, file_reservation.place, file_reservation.project_id,
file_reservation.leading, file_reservation.holder, file_reservation.generation, file_reservation.attempt_id,
file_reservation.mode, file_reservation.checkout, file_reservation.ignore_case, file_reservation."glob",
file_reservation.path, file_reservation.reserved_at_ms, file_reservation.expires_at_ms, file_reservation.reason FROM
file_reservation WHERE file_reservation.project_id = :project_id AND file_reservation.leading = :leading AND
file_reservation.expires_at_ms > :now_ms"""
BELOW_FOLDER: Final = """\
SELECT file_reservation.reservation_id, file_reservation.place, file_reservation.project_id,
file_reservation.leading, file_reservation.holder, file_reservation.generation, file_reservation.attempt_id,
file_reservation.mode, file_reservation.checkout, file_reservation.ignore_case, file_reservation."glob",
file_reservation.path, file_reservation.reserved_at_ms, file_reservation.expires_at_ms, file_reservation.reason FROM
file_reservation WHERE file_reservation.project_id = :project_id AND file_reservation.leading >= :first AND
file_reservation.leading < :end AND file_reservation.expires_at_ms > :now_ms"""
OF_RESERVATION: Final = """\
SELECT file_reservation.reservation_id, file_reservation.place, file_reservation.project_id,
file_reservation.leading, file_reservation.holder, file_reservation.generation, file_reservation.attempt_id,
file_reservation.mode, file_reservation.checkout, file_reservation.ignore_case, file_reservation."glob",
file_reservation.path, file_reservation.reserved_at_ms, file_reservation.expires_at_ms, file_reservation.reason FROM
file_reservation WHERE file_reservation.reservation_id = :reservation_id AND file_reservation.expires_at_ms >
:now_ms ORDER BY file_reservation.place"""
HELD_COUNT: Final = """\
SELECT count(*) AS count_1 FROM file_reservation WHERE file_reservation.holder = :holder AND
file_reservation.expires_at_ms > :now_ms"""
HELD_BY: Final = """\
SELECT file_reservation.reservation_id, file_reservation.place, file_reservation.project_id,
file_reservation.leading, file_reservation.holder, file_reservation.generation, file_reservation.attempt_id,
file_reservation.mode, file_reservation.checkout, file_reservation.ignore_case, file_reservation."glob",
file_reservation.path, file_reservation.reserved_at_ms, file_reservation.expires_at_ms, file_reservation.reason FROM
file_reservation WHERE file_reservation.holder = :holder AND (file_reservation.reservation_id,
file_reservation.place) > (:reservation_id, :place) AND file_reservation.expires_at_ms > :now_ms ORDER BY
file_reservation.reservation_id, file_reservation.place LIMIT :limit OFFSET 0"""
LISTED: Final = """\
SELECT file_reservation.reservation_id, file_reservation.place, file_reservation.project_id,
file_reservation.leading, file_reservation.holder, file_reservation.generation, file_reservation.attempt_id,
file_reservation.mode, file_reservation.checkout, file_reservation.ignore_case, file_reservation."glob",
file_reservation.path, file_reservation.reserved_at_ms, file_reservation.expires_at_ms, file_reservation.reason FROM
file_reservation WHERE file_reservation.project_id = :project_id AND (file_reservation.leading,
file_reservation.reservation_id, file_reservation.place) > (:leading, :reservation_id, :place) AND
file_reservation.expires_at_ms > :now_ms ORDER BY file_reservation.leading, file_reservation.reservation_id,
file_reservation.place LIMIT :limit OFFSET 0"""
ANY_EXPIRED: Final = """\
SELECT 1 FROM file_reservation WHERE file_reservation.expires_at_ms <= :now_ms LIMIT 1 OFFSET 0"""
EXPIRED: Final = """\
SELECT file_reservation.reservation_id, file_reservation.place FROM file_reservation WHERE
file_reservation.expires_at_ms <= :now_ms ORDER BY file_reservation.expires_at_ms LIMIT :limit OFFSET 0"""
INSERT: Final = """\
INSERT INTO file_reservation (reservation_id, place, project_id, leading, holder, generation, attempt_id, mode,
checkout, ignore_case, "glob", path, reserved_at_ms, expires_at_ms, reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
?, ?, ?, ?)"""
SET_EXPIRY: Final = """\
UPDATE file_reservation SET expires_at_ms=:expires_at_ms WHERE file_reservation.reservation_id = :was_reservation_id
AND file_reservation.place = :was_place AND file_reservation.expires_at_ms = :was_expires_at_ms"""
DROP: Final = """\
DELETE FROM file_reservation WHERE file_reservation.reservation_id = :reservation_id AND file_reservation.place =
:place"""
DROP_OF_ATTEMPT: Final = """\
DELETE FROM file_reservation WHERE file_reservation.attempt_id = :attempt_id"""
DROP_OF_HOLDER: Final = """\
DELETE FROM file_reservation WHERE file_reservation.holder = :holder AND file_reservation.generation < :below"""
