"""`python -m tocsin.cli`: as `tocsin`."""

from .main import main

main()
