"""Sends traces, metrics and logs to an OTLP endpoint, to Application Insights, or to both. Off unless the environment names one.

begin.py        what the environment asks for; the only place that imports the SDK and exporters, and only then
points.py       the families of `/api/metrics` as OpenTelemetry's points
logs.py         log records with their `action`
complaints.py   what those libraries log, as lines of the service
service.py      the figures, once a minute, from the process that the timer runs in
"""
