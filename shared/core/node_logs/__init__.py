"""Sends the log lines of a node (an agent, or a server with a keeper) away from it: by OTLP over HTTP, to journald, or to syslog.

    outputs     the settings, and `export_logs`, which starts everything
    lines       a log record as one bounded line without secrets
    otlp        a queue and a thread of its own that sends batches
    datagrams   journald and syslog, one datagram a line, without a thread

No output ever blocks the code that logs: lines that cannot be sent are dropped and counted.
"""
