"""Seeded days of a replica group on virtual time: the app's own protocol over the in-memory tables, and members that follow the production
rules of a node, with lost and late messages, crashes, promotions, slow clocks and checkpoints that get longer or shorter.

    world      virtual time, the store, requests with weather
    member     one replica: its reports, its checkpoints, its state file
    history    what happens to a group in the days of a seed, the promises, and what is measured
    planted    known bugs, which must be found
"""
