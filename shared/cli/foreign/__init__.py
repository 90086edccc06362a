"""`tocsin import`: makes a file for `tocsin apply` from the definitions of another scheduler, and names what it cannot carry over.

    command           the command: files in, YAML, events and a report out
    carried           what was carried over and what was not; ids, channels, cron expressions
    function_json     timer triggers of Azure Functions
    crontab           lines of cron
    eventbridge       schedules and rules of Amazon EventBridge
    cloud_tasks       queues and tasks of Google Cloud Tasks

Reading is pure: texts in, a `Carried` out. Nothing is sent to an app.
"""
