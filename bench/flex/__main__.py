"""`python -m bench.flex`: the same as `python -m bench flex`."""

import sys

from .command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
