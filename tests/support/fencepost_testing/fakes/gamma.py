"""The fake service "gamma"."""

from fencepost_testing.fakes.fake import main

if __name__ == "__main__":
    main("gamma")
