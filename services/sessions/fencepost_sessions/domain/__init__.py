"""Values and decisions of the directory: no I/O, no clock, no log, no protobuf."""
