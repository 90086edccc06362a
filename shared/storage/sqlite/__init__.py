"""The twin that keeps rows and messages in a folder: a database of SQLite, for one process at a time.

    database   the file, the thread that works on it, and the transactions that calls share
    tables     `ports.Tables`
    queues     `ports.Queues`

Each call is a function of the connection. The thread takes what has been asked for meanwhile, runs all of it in one transaction, and
answers when the transaction is on disk: what a caller has seen survives the process and a power cut. The suite in tests/conformance holds
both to the behaviour of the service.
"""
