"""The scheduler on several instances: `python -m bench cluster`.

cpu        what instances charge, and the cores that they charge
storage    storage accounts with Azure's published limits, as one instance sees them
paused     a process that gets a part of a core
instances  the app's own code on each instance, the clients, and the receiver, on virtual time
figures    the loads, and the rows of the table
chart      a drawing of throughput against instances
pair       two devhosts on one storage, beside the model of them
"""
