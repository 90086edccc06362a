"""The worker: a process of its own that runs the app's functions, and the part of the host that starts it and exchanges messages with it.

model      the content of the messages between the two processes
channel    messages over a socket, as plain data
library    indexes the app and invokes its functions through the production worker library
protos     stand-ins for the protobuf messages of that library
child      the worker process (`python -m devhost.worker.child`)
process    starts a worker process, sends it invocations, kills it, replaces it
pool       one worker process for all functions, or one for each group of them
"""
