"""What a file reservation is, which paths it covers, and what stands against what. Frozen values and pure functions."""
