"""What the service's callers ask for, one RPC a file."""
