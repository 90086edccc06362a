"""`tocsin mcp`: lets an assistant ask about a service, over the Model Context Protocol on standard input and output.

    command      the command: options, instructions, and the list of tools
    server       the server of the official SDK, and how tools fail
    reading      tools that read
    writing      tools that change something; only with --allow-writes
    answers      what an answer shows: bounded, with times, with secrets masked, and with foreign text marked;
                 and why an event was late

Each call of a tool has a session of its own, with the connection that the options select: calls at the same time share nothing.
"""
