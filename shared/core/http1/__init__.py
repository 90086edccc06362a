"""A lean HTTP/1.1 client for deliveries and for storage: one request at a time on each kept connection.

head         reads the head of an answer, within bounds; pure
answer       reads an answer of which only the status counts; pure
full_answer  reads an answer with its headers and its body; pure
connection   one connection: an `asyncio.Protocol`
pool         the connections of a process, made for addresses that were checked
"""
