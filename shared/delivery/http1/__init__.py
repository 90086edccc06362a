"""A lean HTTP/1.1 client for deliveries: one request at a time on each kept connection, and no more of the answer than its status.

    answer      reads the bytes of an answer, within bounds; pure
    connection  one connection: an `asyncio.Protocol`
    pool        the connections of a process, made for addresses that were checked
"""
