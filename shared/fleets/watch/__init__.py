"""The watch over all fleets, run by the app's timers: finds problems, raises alarms, and repairs where no server does.

alarms         table of all alarms: threshold, sentence, log action, notification kind
rules          pure: findings of one inspection, and the alarms that follow
inspection     the sweep of every minute: inspects, raises and clears alarms, sends them as events, tidies up
state          stored state of the watch between inspections
figures        gauges for `/api/metrics`
service        `FleetWatch`, which wires the parts together
routes         `leases/stale`
"""
