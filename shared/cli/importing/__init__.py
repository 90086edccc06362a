"""`tocsin events import`: events by the million, with memory for a few batches, and resumed where it was stopped.

    reading    lines of NDJSON and CSV to encoded events, and what is wrong with a line
    progress   how far an import is, in a small file
    sending    batches in flight, settled in the file's order
    command    the command
"""
