"""`tocsin events import`: import millions of events with memory for a few batches, and resume after a stop.

reading    turns lines of NDJSON and CSV into encoded events, and says what is wrong with a line
progress   stores how far an import is, in a small file
sending    sends batches in parallel and settles them in the file's order
command    runs the import
"""
