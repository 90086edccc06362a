"""`python -m devhost`: see `devhost.main`."""

from devhost.main import main

if __name__ == "__main__":
    main()
