"""`python -m tocsin.cli`: as `tocsin`."""

from .start import main

main()
