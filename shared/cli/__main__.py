"""Run the `tocsin` command: `python -m tocsin.cli`."""

from .start import main

main()
