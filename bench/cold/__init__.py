"""The cold start of a process: what it imports and computes before it serves its first queue message, and its first call.

package.py   makes a folder with what is deployed, compiled as it is deployed
worker.py    runs in a process of its own, from that folder alone; it measures itself
stages.py    prepares storage and a due event, and runs the workers
command.py   `python -m bench cold`: the table
"""
