"""What the edge decides by itself: how a shim's bytes are read, and what a mailbox's facts say of an agent."""
