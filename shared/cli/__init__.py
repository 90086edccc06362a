"""The `tocsin` command.

    main        the command, its groups loaded when they are used
    exits       exit codes, one list for all groups
    failures    what is said when something fails: what, where, what to do
    connection  TOCSIN_URL and TOCSIN_KEY
    profiles    deployments by name
    session     what the groups for people share: the app, --json, --watch
    output      tables
    groups/     the groups for people, one a job
    importing/  events by the million

A group is a module with a function `register(app)`, and a line in `main.GROUPS`. It imports what it needs inside its functions: a process
of `tocsin agent` lives for months on a small machine.
"""
