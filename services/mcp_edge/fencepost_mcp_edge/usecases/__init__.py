"""What a tool call does: one call to a service, or two for a listing."""
