"""The `tocsin` command.

    start                the console script
    main                 the command; it loads a group when the group is used
    help                 help texts from docstrings: summary, details, examples
    exits                exit codes, one list for all groups
    failures             error messages: what is wrong, where, what to do next
    connections          which app to call, with which key: --url, --key, --connection, and the file of named connections
    session              one run of a command: the app it calls, its output, the values of its options
    commands             adds commands to groups, with the options that all have: --json, --watch, --url
    watching             --watch: refreshes a screen, and outlives an app that does not answer
    findings             what `doctor` and `check-` commands have found, and how it is printed
    dev                  `tocsin dev`
    events/              `tocsin events`, `tocsin jobs`
    importing/           `tocsin events import`
    fleets/              leases, checkpoint turns, maintenance
    doctor/              `tocsin doctor`, `tocsin leases doctor`
    groups/              the other groups for people, a module for each
    declared/            `tocsin apply`, `tocsin export`
    deployment/          `tocsin check-deployment`
    receiver/            `tocsin check-receiver`
    what_if/             `tocsin what-if`
    foreign/             `tocsin import`: the definitions of other schedulers
    assistant/           `tocsin mcp`
    node/                commands that run on a fleet's machines
    terminal/            tables, times, JSON documents

A group is a module with a function `register(app)` and a line in `main.GROUPS`. It imports what it needs inside its functions, because
a process of `tocsin agent` lives for months on a small machine.
"""
