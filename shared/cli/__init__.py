"""The `tocsin` command.

    start       the console script
    main        the command, its groups loaded when they are used
    exits       exit codes, one list for all groups
    failures    what is said when something fails: what, where, what to do
    connection  which app, and which key
    profiles    deployments by name
    session     what the groups for people share: the app, --json, --watch
    watching    looking again and again
    output      tables
    documents   JSON, with all digits
    groups/     the groups for people, one a job
    importing/  events by the million

A group is a module with a function `register(app)`, and a line in `main.GROUPS`. It imports what it needs inside its functions: a process
of `tocsin agent` lives for months on a small machine.
"""
