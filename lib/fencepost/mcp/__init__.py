"""Fencepost's MCP face: the tool table that everybody shares, and the stdio shim that agent programs start."""
