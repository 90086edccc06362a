"""The `tocsin` command.

    start                the console script
    main                 the command; it loads a group when the group is used
    help                 help texts from docstrings: summary, details, examples
    exits                exit codes, one list for all groups
    failures             error messages: what is wrong, where, what to do next
    connection_options   --url, --key, --connection: which app to call, with which key
    connections          the file of named connections
    session              one run of a command: the app it calls, its output, the values of its options
    commands             adds commands to groups, with the options that all have: --json, --watch, --url
    watching             --watch: refreshes a screen, and outlives an app that does not answer
    doctor               findings about a fleet, for `tocsin leases doctor`
    groups/              commands for people, a module for each group
    importing/           `tocsin events import`
    foreign/             `tocsin import`: the definitions of other schedulers
    assistant/           `tocsin mcp`
    node/                commands that run on a fleet's machines
    terminal/            tables, times, JSON documents

A group is a module with a function `register(app)` and a line in `main.GROUPS`. It imports what it needs inside its functions, because
a process of `tocsin agent` lives for months on a small machine.
"""
