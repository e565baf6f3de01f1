"""How agent programs are told of their MCP server: what each one's configuration holds, and editing it safely.

Promises: a configuration is changed by one atomic replacement that keeps its mode, comments and order; a private backup
lies in the home before that; undoing restores the file byte for byte where nobody has changed it since, and else takes
out only what was put in. Refuses: to replace an entry that is not ours or that somebody has edited, and to write what
does not read back as the old configuration and our entry. Never: creates an identity, approves a tool unasked.
"""
