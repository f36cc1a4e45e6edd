"""`python -m pilothouse`: the command, where no entry point is installed."""

from pilothouse.cli.main import main

if __name__ == "__main__":
    main()
