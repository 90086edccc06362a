"""The watch over all fleets, by the app's timers: what a person should look at, and what nobody else does.

    rules       pure: findings of one look, and which of them are alarms by now
    state       what is remembered of a fleet between looks
    turns       which fleets come next, in fair turns
    takeover    fences the silent by storage's own time, ends what has expired, plans where no server looks
    inspect     finds, alarms, tells, and tidies up
    notices     alarms as events on the tenant's own channel
    figures     gauges for `/api/metrics`
    functions   the door of `leases/stale`
"""
