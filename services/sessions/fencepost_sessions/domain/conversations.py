"""Which exact provider conversation an agent goes on with: bound once, and left only on purpose (facts 5.51)."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import replace

from fencepost_sessions.domain.agents import Agent
from fencepost_sessions.domain.identifiers import uuid_text
from fencepost_sessions.domain.limits import CONVERSATION_BYTES_MAX
from fencepost_sessions.domain.names import is_uuid_shaped
from fencepost_sessions.domain.refusals import ConversationConflict, InvalidConversation
from fencepost_sessions.domain.texts import word_flaw


def conversation_name(text: str) -> str:
    """Return a conversation as its provider names it; empty for none.

    Raises:
        InvalidConversation: over CONVERSATION_BYTES_MAX bytes, padded, or with controls.
    """
    flaw = word_flaw(text, CONVERSATION_BYTES_MAX) if text else None
    if flaw is not None:
        raise InvalidConversation(
            f"the conversation {flaw}; nothing was written", hint="Give it exactly as its program names it."
        )
    return text


def uuid_meant(conversation_id: str) -> bytes | None:
    """Return the UUID that a conversation's name spells, in whatever form."""
    return uuid.UUID(conversation_id).bytes if is_uuid_shaped(conversation_id) else None


def token_meant(conversation_id: str) -> bytes:
    """Return the SHA-256 of a conversation's name, by which a token would be known."""
    return hashlib.sha256(conversation_id.encode("utf-8", "surrogatepass")).digest()


def check_names_a_conversation(agent: Agent | None, *, is_token: bool) -> None:
    """Let a conversation have a name that means nothing of ours.

    Raises:
        InvalidConversation: it is the UUID of an agent, or the token of a credential.
    """
    if agent is not None:
        raise InvalidConversation(
            "this is the UUID of an agent, not of a conversation; nothing was written",
            hint="Read the conversation's own name from its program.",
        )
    if is_token:
        raise InvalidConversation(
            "this is a credential, not a conversation; nothing was written",
            hint="Read the conversation's own name from its program, and replace the credential: it was shown.",
        )


def bound(agent: Agent, conversation_id: str, *, replacing: bool, other: Agent | None) -> Agent:
    """Return the agent with its conversation, with the revision that it had; the very same where nothing changes.

    `other` is the agent that has this conversation. An empty conversation clears.

    Raises:
        ConversationConflict: it is another agent's; or another one is bound, and `replacing` is False.
    """
    if agent.conversation_id == conversation_id:
        return agent
    if other is not None:
        raise ConversationConflict(
            "another agent has this conversation; nothing was written",
            hint="Begin a new conversation for this agent, or clear it at the other one first.",
            state={"agent_id": uuid_text(other.agent_id)},
        )
    if agent.conversation_id and conversation_id and not replacing:
        raise ConversationConflict(
            "the agent is bound to another conversation; nothing was written",
            hint="Resume the one that is bound. Only a person leaves it, by asking for a new one.",
            state={"conversation_id": agent.conversation_id},
        )
    return replace(agent, conversation_id=conversation_id)
