"""`python -m twofold` is the command line."""

from twofold.cli.fast_path import main

if __name__ == "__main__":
    main()
