"""The twin that keeps rows and messages in a folder: an SQLite database, for one process at a time.

    database   the file, the thread that works on it, and the transactions that calls share
    tables     `ports.Tables`
    queues     `ports.Queues`

Each call is a function of the connection. The thread takes all calls that wait, runs them in one transaction, and answers when
the transaction is on disk: an acknowledged write survives the end of the process and a power cut. The suite in tests/conformance compares
tables and queues with the behaviour of the service.
"""
