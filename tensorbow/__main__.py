"""`python -m tensorbow` is the command line."""

from tensorbow.launcher import main

if __name__ == "__main__":
    main()
