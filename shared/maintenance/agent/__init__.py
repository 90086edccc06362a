"""The agent of a node. It polls the Instance Metadata Service, decides, runs the node's hooks, approves events and restores the node.

    decisions/    pure rules; `decisions.step` combines them
    model, policy plain values: state, observations, effects, settings of the fleet
    loop, executor, service    the loop, the threads around it, and the process
    journal       keeps the state over crashes
    config/       the configuration file
    hooks/        runs hooks; recipes for common programs
    imds/         the Instance Metadata Service
    app/          reports to the app

Nothing here imports the app's libraries, so that the agent stays small.
"""
