"""The providers service: carries records into agents' own running conversations."""
