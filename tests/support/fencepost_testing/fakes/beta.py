"""The fake service "beta"."""

from fencepost_testing.fakes.fake import main

if __name__ == "__main__":
    main("beta")
