"""The rows of the tool table, one module a family or a part of one."""
