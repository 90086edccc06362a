"""The one error of a port, an emulator or a browser that did not start: a fault of the machine, which another attempt may not have."""


class DidNotStart(Exception):
    """A port, an emulator or a browser did not start. The message names it and gives the reason. Raised by what starts them alone."""
