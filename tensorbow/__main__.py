"""Runs the command line: `python -m tensorbow`."""

from tensorbow.launcher import main

if __name__ == "__main__":
    main()
