"""CPU, transactions and memory with more and more open events, tenants, schedules and channels: `python -m bench growth`.

cell      one size of one kind: fills a folder, and measures a process over it
figures   the sizes, and the rows of the table
chart     a drawing of the growth
"""
