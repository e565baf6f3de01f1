"""The MCP edge: the tool table, served to the stdio shims of one home over a Unix socket.

Promises: a tool call reaches a service at most once, under the agent's own credential and a key made of its connection
and id; a lost answer is settled, never replayed; a restart of mailbox or sessions stays invisible within the budgets.
Refuses: malformed arguments, before anything is asked of a service.
Never: keeps anything, decides anything, or speaks with an authority of its own.
"""
