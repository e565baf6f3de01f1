"""Everything else that the directory decides without a disk, at both sides of every limit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_kit.refusal import Malformed
from fencepost_kit.serve import MESSAGE_BYTES_MAX as MESSAGE_BYTES_OF_TRANSPORT
from fencepost_sessions import translate
from fencepost_sessions.domain.agents import (
    Agent,
    AgentChange,
    agent_bytes,
    changed,
    check_room_for_agent,
    next_life,
    provider_name,
)
from fencepost_sessions.domain.credentials import Credential, Minted, credential_bytes, credential_of_agent, outlived
from fencepost_sessions.domain.directory import (
    Changes,
    Directory,
    Removal,
    confirmed_revision,
    needs_snapshot,
    starting_revision,
    step_of_changes,
)
from fencepost_sessions.domain.idempotency import FirstAnswer, content_hash, idempotency_key, same_content
from fencepost_sessions.domain.identifiers import uuid_bytes, uuid_text
from fencepost_sessions.domain.launch import DeliverWhenActive, Desired, LaunchSettings
from fencepost_sessions.domain.limits import (
    AGENTS_PER_PROJECT_MAX,
    CHANGES_PER_MESSAGE_MAX,
    CONVERSATION_BYTES_MAX,
    IDEMPOTENCY_KEY_BYTES_MAX,
    INCLUDE_DIRECTORIES_MAX,
    MESSAGE_BYTES_MAX,
    NAME_CHARS_MAX,
    NAME_INPUT_BYTES_MAX,
    OLD_CREDENTIALS_KEPT_MAX,
    PAGE_ROWS_DEFAULT,
    PAGE_ROWS_MAX,
    PAGE_TOKEN_BYTES_MAX,
    PATH_BYTES_MAX,
    PROJECTS_MAX,
    PROVIDER_BYTES_MAX,
    STATUS_DETAIL_BYTES_MAX,
    TURN_BYTES_MAX,
)
from fencepost_sessions.domain.names import agent_name
from fencepost_sessions.domain.paging import (
    NAME_START,
    NUMBER_START,
    NamePosition,
    NumberPosition,
    cut,
    list_mark,
    name_position,
    name_token,
    number_position,
    number_token,
    page_rows,
)
from fencepost_sessions.domain.paths import name_from_location, project_location, workspace_path
from fencepost_sessions.domain.projects import (
    Project,
    ProjectKind,
    check_room_for_project,
    project_bytes,
    project_place,
)
from fencepost_sessions.domain.refusals import (
    EpochMismatch,
    IdempotencyConflict,
    InvalidCursor,
    InvalidIdempotencyKey,
    InvalidLimit,
    InvalidLocation,
    InvalidName,
    InvalidProvider,
    InvalidRevision,
    InvalidRole,
    InvalidWorkspace,
    LimitReached,
    StaleGeneration,
)
from fencepost_sessions.domain.roles import Role, agent_role
from fencepost_sessions.domain.status import Evidence, Observed, Status, status_bytes

EPOCH = b"e" * 16
AGENT = Agent(
    agent_id=b"a" * 16,
    project_id=b"p" * 16,
    name="ann",
    name_key="ann",
    role=Role.AGENT,
    provider="codex",
    workspace="/w",
    generation=3,
    created_at_ms=7,
    revision=11,
)


def a_credential(*, generation: int = 1, revision: int = 1, number: int = 0) -> Credential:
    minted = Minted(credential_id=number.to_bytes(16, "big"), token_sha256=bytes(32), now_ms=0)
    return credential_of_agent(replace(AGENT, generation=generation, revision=revision), minted)


# --- ids, roles, providers -------------------------------------------------------------------------------------------


@given(value=st.binary(min_size=16, max_size=16))
def test_ids_keep_their_value_through_text(value: bytes) -> None:
    assert uuid_bytes(uuid_text(value), what="id") == value


@pytest.mark.parametrize(
    "text", ["", "x", "0198C0DE-0000-7000-8000-0000000000AA", "0198c0de000070008000000000000000aa"]
)
def test_an_id_in_any_other_form_is_refused_by_the_name_of_its_field(text: str) -> None:
    with pytest.raises(Malformed, match="agent_id"):
        uuid_bytes(text, what="agent_id")


def test_an_agent_can_be_agent_or_coordinator_and_nothing_else() -> None:
    assert agent_role(None) is Role.AGENT
    assert agent_role(1) is Role.AGENT
    assert agent_role(2) is Role.COORDINATOR
    for other in (0, 3, 4, 5, -1):
        with pytest.raises(InvalidRole):
            agent_role(other)


def test_a_provider_is_short_visible_text_or_empty() -> None:
    assert provider_name("") == ""
    assert provider_name("é" * (PROVIDER_BYTES_MAX // 2)) == "é" * (PROVIDER_BYTES_MAX // 2)
    for text in ("x" * (PROVIDER_BYTES_MAX + 1), "é" * (PROVIDER_BYTES_MAX // 2 + 1), " codex", "co\ndex"):
        with pytest.raises(InvalidProvider):
            provider_name(text)


# --- paths and projects ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/a", "/a b/ü", "/a/.git", "/...", "/" + "x" * (PATH_BYTES_MAX - 1)])
def test_absolute_canonical_paths_are_kept_as_they_are(path: str) -> None:
    assert project_location(path) == workspace_path(path) == path


@pytest.mark.parametrize(
    "path", ["a", "./a", "/a/", "//a", "/a//b", "/./a", "/a/..", "/a\0", "/" + "x" * PATH_BYTES_MAX]
)
def test_every_other_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidLocation):
        project_location(path)
    with pytest.raises(InvalidWorkspace):
        workspace_path(path)


def test_a_workspace_may_be_unknown_and_a_location_may_not() -> None:
    assert workspace_path("") == ""
    with pytest.raises(InvalidLocation):
        project_location("")


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("/srv/me/repo/.git", "repo"),
        ("/srv/repo.git", "repo"),
        ("/srv/me/folder", "folder"),
        ("/.git", ".git"),
        ("/", "project"),
        ("/a/\x1b\n", "project"),
        ("/a/ padded ", "padded"),
        ("/a/" + "n" * 200, "n" * NAME_CHARS_MAX),
    ],
)
def test_a_project_is_named_by_the_last_part_of_its_location(location: str, name: str) -> None:
    assert name_from_location(location) == name
    assert project_place(kind=1, location=location, name="").name == name


def test_a_project_has_a_kind_and_a_name_without_controls() -> None:
    assert project_place(kind=2, location="/a", name="Zoe\u0308").name == "Zoë"
    assert project_place(kind=2, location="/a", name="b").kind is ProjectKind.FOLDER
    for kind in (0, 3):
        with pytest.raises(InvalidLocation):
            project_place(kind=kind, location="/a", name="")
    for name in (" ", " a", "a\n", "n" * (NAME_CHARS_MAX + 1), "n" * (NAME_INPUT_BYTES_MAX + 1)):
        with pytest.raises(InvalidName):
            project_place(kind=1, location="/a", name=name)


def test_one_more_than_the_most_projects_or_agents_is_refused() -> None:
    check_room_for_project(PROJECTS_MAX - 1)
    check_room_for_agent(AGENTS_PER_PROJECT_MAX - 1)
    with pytest.raises(LimitReached):
        check_room_for_project(PROJECTS_MAX)
    with pytest.raises(LimitReached):
        check_room_for_agent(AGENTS_PER_PROJECT_MAX)


# --- agents, lives, credentials --------------------------------------------------------------------------------------


def test_a_change_that_changes_nothing_is_the_same_agent() -> None:
    assert changed(AGENT, AgentChange()) is AGENT
    assert changed(AGENT, AgentChange(name=agent_name("ann"), role=Role.AGENT, provider="codex")) is AGENT


def test_a_change_touches_what_it_names_and_nothing_else() -> None:
    after = changed(AGENT, AgentChange(name=agent_name("Bob"), role=Role.COORDINATOR, workspace=""))
    assert after == replace(AGENT, name="Bob", name_key="bob", role=Role.COORDINATOR, workspace="")


@pytest.mark.requirement("sessions.generations-are-begun-once")
def test_a_life_begins_only_from_the_generation_that_the_caller_expects() -> None:
    for expected in (0, 3):
        assert next_life(AGENT, expected_generation=expected, revision=12) == replace(AGENT, generation=4, revision=12)
    for expected in (1, 2, 4, -1):
        with pytest.raises(StaleGeneration) as refused:
            next_life(AGENT, expected_generation=expected, revision=12)
        assert refused.value.state == {"generation": "3"}


@pytest.mark.parametrize("extra", [0, 1, 5])
def test_only_so_many_old_credentials_stay_and_the_oldest_go(extra: int) -> None:
    current = OLD_CREDENTIALS_KEPT_MAX + extra + 1
    standing = [a_credential(generation=generation, number=generation) for generation in range(1, current + 1)]
    gone = outlived(standing, generation=current)
    assert {one.generation for one in gone} == set(range(1, extra + 1))


# --- idempotency -----------------------------------------------------------------------------------------------------

parts = st.lists(st.one_of(st.none(), st.integers(), st.text()), max_size=4)


@given(left=parts, right=parts)
def test_two_contents_have_one_hash_only_if_they_are_equal(
    left: list[str | int | None], right: list[str | int | None]
) -> None:
    same_kinds = [type(part) for part in left] == [type(part) for part in right]
    assert (content_hash(*left) == content_hash(*right)) is (left == right and same_kinds)


def test_a_key_has_one_byte_to_the_most() -> None:
    make = partial(idempotency_key, scope=b"s", operation="X", content=())
    assert make(key="k").key == "k"
    assert make(key="é" * (IDEMPOTENCY_KEY_BYTES_MAX // 2))
    for key in ("", "k" * (IDEMPOTENCY_KEY_BYTES_MAX + 1), "é" * (IDEMPOTENCY_KEY_BYTES_MAX // 2 + 1)):
        with pytest.raises(InvalidIdempotencyKey):
            make(key=key)


def test_the_same_content_gets_the_first_answer_and_other_content_is_refused() -> None:
    first = idempotency_key(scope=b"s", operation="X", key="k", content=("a", 1))
    answer = FirstAnswer(content_sha256=first.content_sha256, answer={"n": 1})
    assert same_content(answer, first) == {"n": 1}
    with pytest.raises(IdempotencyConflict):
        same_content(answer, idempotency_key(scope=b"s", operation="X", key="k", content=("a", 2)))


# --- pages -----------------------------------------------------------------------------------------------------------

MARK = list_mark(EPOCH, "agents", None)


def test_a_page_holds_one_row_to_the_most() -> None:
    assert page_rows(0) == PAGE_ROWS_DEFAULT
    assert page_rows(1) == 1
    assert page_rows(PAGE_ROWS_MAX) == PAGE_ROWS_MAX
    for asked in (-1, PAGE_ROWS_MAX + 1):
        with pytest.raises(InvalidLimit):
            page_rows(asked)


def test_a_page_ends_where_a_row_more_was_found() -> None:
    assert cut([1, 2, 3], 2, lambda _row: 1) == ((1, 2), 2)
    assert cut([1, 2], 2, lambda _row: 1) == ((1, 2), None)
    assert cut([], 2, lambda _row: 1) == ((), None)


@pytest.mark.requirement("sessions.messages-fit-the-transport")
def test_a_page_ends_where_a_row_more_would_be_too_many_bytes() -> None:
    half = MESSAGE_BYTES_MAX // 2
    assert cut([half, half, 1], 9, int) == ((half, half), half)
    assert cut([half, half + 1, 1], 9, int) == ((half,), half)
    assert cut([MESSAGE_BYTES_MAX + 1, 1], 9, int) == ((MESSAGE_BYTES_MAX + 1,), MESSAGE_BYTES_MAX + 1)
    assert cut([half, half], 9, int) == ((half, half), None)


@pytest.mark.requirement("sessions.messages-fit-the-transport")
def test_the_greatest_page_is_less_than_the_transport_takes() -> None:
    name = "\U0001f600" * NAME_CHARS_MAX
    path = "/" + "x" * (PATH_BYTES_MAX - 1)
    agent = replace(
        AGENT,
        name=name,
        provider="p" * PROVIDER_BYTES_MAX,
        workspace=path,
        created_at_ms=2**62,
        revision=2**62,
        desired=Desired.PAUSED,
        launch=LaunchSettings(
            **dict.fromkeys(
                ("class_name", "model", "effort", "sandbox", "approval", "session_policy", "capture", "tools_profile"),
                "x" * 32,
            ),
            include_directories=(path[: PATH_BYTES_MAX // 4],) * INCLUDE_DIRECTORIES_MAX,
            deliver_when_active=DeliverWhenActive.AFTER_TURN,
        ),
        conversation_id="x" * CONVERSATION_BYTES_MAX,
    )
    status = Status(
        state=Observed.ACTION_NEEDED,
        evidence=Evidence.OPERATOR,
        detail="x" * STATUS_DETAIL_BYTES_MAX,
        turn_id="x" * TURN_BYTES_MAX,
        observed_at_ms=2**62,
        generation=2**62,
        sequence=2**62,
    )
    project = Project(
        project_id=bytes(16), number=1, kind=ProjectKind.GIT, location=path, name=name, created_at_ms=2**62
    )
    credential = replace(a_credential(generation=2**62, revision=2**62), label=name)
    for row, weigh, message in (
        (agent, agent_bytes, translate.agent_to_proto(agent)),
        (status, status_bytes, translate.status_to_proto(status)),
        (project, project_bytes, translate.project_to_proto(project)),
        (credential, credential_bytes, translate.credential_to_service(credential)),
    ):
        # Tag and length of a row in its message take four bytes at most.
        assert message.ByteSize() + 4 <= weigh(row)  # type: ignore[operator]
    assert 3 * MESSAGE_BYTES_MAX // 2 < MESSAGE_BYTES_OF_TRANSPORT


@given(key=st.text(min_size=1, max_size=NAME_CHARS_MAX), row_id=st.binary(min_size=16, max_size=16))
def test_a_token_in_name_order_says_where_it_was(key: str, row_id: bytes) -> None:
    place = NamePosition(key=key, row_id=row_id)
    token = name_token(MARK, place)
    assert name_position(MARK, token) == place
    assert len(token) <= PAGE_TOKEN_BYTES_MAX


def test_the_longest_name_key_fits_in_a_token() -> None:
    # Folding lengthens text at most threefold, each code point having at most four bytes.
    place = NamePosition(key="\U0001f600" * (3 * NAME_CHARS_MAX), row_id=bytes(16))
    assert name_position(MARK, name_token(MARK, place)) == place


@given(number=st.integers(min_value=0, max_value=2**63 - 1), row_id=st.binary(min_size=16, max_size=16))
def test_a_token_in_number_order_says_where_it_was(number: int, row_id: bytes) -> None:
    place = NumberPosition(number=number, row_id=row_id)
    assert number_position(MARK, number_token(MARK, place)) == place


def test_no_token_is_the_start() -> None:
    assert name_position(MARK, "") == NAME_START
    assert number_position(MARK, "") == NUMBER_START


@pytest.mark.requirement("sessions.foreign-page-tokens-are-refused")
def test_a_token_of_another_list_filter_or_directory_is_refused() -> None:
    token = number_token(MARK, NumberPosition(number=1, row_id=bytes(16)))
    for other in (
        list_mark(EPOCH, "projects", None),
        list_mark(EPOCH, "agents", b"p" * 16),
        list_mark(b"f" * 16, "agents", None),
    ):
        with pytest.raises(InvalidCursor):
            number_position(other, token)


@given(token=st.text(min_size=1, max_size=80))
def test_no_text_that_was_not_given_out_is_taken_for_a_token(token: str) -> None:
    for position in (name_position, number_position):
        with pytest.raises(InvalidCursor):
            position(MARK, token)


@pytest.mark.parametrize("change", [lambda t: t + "=", lambda t: t[:-1], lambda t: t + "A", lambda t: "!" + t])
def test_a_token_that_was_changed_is_refused(change: object) -> None:
    token = number_token(MARK, NumberPosition(number=1, row_id=bytes(16)))
    with pytest.raises(InvalidCursor):
        number_position(MARK, change(token))  # type: ignore[operator]


def test_a_token_over_the_most_bytes_is_refused_unread() -> None:
    with pytest.raises(InvalidCursor):
        name_position(MARK, "A" * (PAGE_TOKEN_BYTES_MAX + 1))


# --- followers -------------------------------------------------------------------------------------------------------

HERE = Directory(epoch=EPOCH, revision=20, floor=5)


def test_a_follower_below_what_is_kept_or_with_nothing_gets_everything() -> None:
    assert needs_snapshot(HERE, 0)
    assert needs_snapshot(HERE, 4)
    assert not needs_snapshot(HERE, 5)
    assert not needs_snapshot(HERE, 20)


def test_a_follower_goes_on_from_what_it_holds() -> None:
    assert starting_revision(HERE, epoch=EPOCH, revision=20) == 20
    assert starting_revision(HERE, epoch=None, revision=20) == 0
    assert starting_revision(HERE, epoch=b"f" * 16, revision=3) is None
    for revision in (-1, 21):
        with pytest.raises(InvalidRevision):
            starting_revision(HERE, epoch=EPOCH, revision=revision)


def test_only_a_reached_revision_of_this_directory_is_confirmed() -> None:
    assert confirmed_revision(HERE, epoch=EPOCH, revision=20) == 20
    for epoch in (None, b"f" * 16):
        with pytest.raises(EpochMismatch):
            confirmed_revision(HERE, epoch=epoch, revision=1)
    for revision in (-1, 21):
        with pytest.raises(InvalidRevision):
            confirmed_revision(HERE, epoch=EPOCH, revision=revision)


@pytest.mark.requirement("sessions.followers-miss-nothing")
@given(data=st.data())
def test_following_changes_in_steps_gives_every_row_once_in_order_and_skips_none(data: st.DataObject) -> None:
    revision = data.draw(st.integers(min_value=1, max_value=1_500))
    # Each revision changes an agent, adds a credential, and removes some: as the operations do.
    agents = [replace(AGENT, revision=number) for number in range(1, revision + 1) if number % 2]
    credentials = [a_credential(revision=number, number=number) for number in range(1, revision + 1)]
    removals = [
        Removal(credential_id=bytes(16), revision=number)
        for number in range(1, revision + 1)
        for _ in range(number % 3)
    ]
    held = data.draw(st.integers(min_value=0, max_value=revision - 1))
    start, steps = held, 0
    got_agents: list[int] = []
    got_credentials: list[int] = []
    got_removals: list[int] = []
    directory = Directory(epoch=EPOCH, revision=revision, floor=0)
    while held < revision:
        limit = CHANGES_PER_MESSAGE_MAX + 1
        step = step_of_changes(
            directory,
            Changes(
                agents=[row for row in agents if row.revision > held][:limit],
                credentials=[row for row in credentials if row.revision > held][:limit],
                removals=[row for row in removals if row.revision > held][:limit],
            ),
        )
        assert held < step.revision <= revision
        assert all(len(rows) <= CHANGES_PER_MESSAGE_MAX for rows in (step.agents, step.credentials, step.removals))
        assert all(held < row.revision <= step.revision for row in (*step.agents, *step.credentials, *step.removals))
        got_agents += [row.revision for row in step.agents]
        got_credentials += [row.revision for row in step.credentials]
        got_removals += [row.revision for row in step.removals]
        held = step.revision
        steps += 1
    assert got_agents == [row.revision for row in agents if row.revision > start]
    assert got_credentials == [row.revision for row in credentials if row.revision > start]
    assert got_removals == [row.revision for row in removals if row.revision > start]
    assert steps <= 2 + (revision - start) // (CHANGES_PER_MESSAGE_MAX // 2)


@pytest.mark.parametrize("rows", [CHANGES_PER_MESSAGE_MAX, CHANGES_PER_MESSAGE_MAX + 1])
def test_a_message_holds_exactly_the_most_changes_and_the_next_begins_a_new_one(rows: int) -> None:
    credentials = [a_credential(revision=number, number=number) for number in range(1, rows + 1)]
    directory = Directory(epoch=EPOCH, revision=rows, floor=0)
    step = step_of_changes(directory, Changes(agents=(), credentials=credentials, removals=()))
    assert len(step.credentials) == CHANGES_PER_MESSAGE_MAX == step.revision
