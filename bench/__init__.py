"""Measures the figures of the design page scheduler.md, "Numbers to reach": `python -m bench` (or `make bench`).

    report      what a figure is; the table, as text, JSON and Markdown
    machine     what this ran on
    stage       Azurite, the app in this process or in a devhost, a receiver process
    transactions, batch, singles, cancels, firing, twin      the figures
    receiver, load      small processes of their own: who is called, and who calls
    bullmq              the same herd with BullMQ and Redis
    storage_raw         the storage adapters alone, beside the SDK and bare aiohttp (not part of the table)

All traffic stays on this machine, and every measurement is bounded in count and time.
"""
