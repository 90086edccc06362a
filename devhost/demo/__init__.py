"""Demonstrations: small living systems on this machine, made of the real parts."""
