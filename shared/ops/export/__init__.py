"""Sends traces, metrics and logs to an OTLP endpoint, to Application Insights, or to both. Off unless the environment names one.

start.py        starts exporters soon after the first invocation; imports the SDK, and only if the environment names an endpoint
points.py       converts the families of `/api/metrics` to OpenTelemetry's metrics
early_lines.py  keeps the log lines from before the start, and takes those of a hosted process away from its host
early_spans.py  keeps the spans from before the start
host_log.py     writes log lines where the Functions host shows them, without an exporter
host_levels.py  finds the levels from which the host logs, in host.json and app settings
logs.py         exports log records with their `action`
log_filter.py   logs the warnings of the exporting libraries as lines of the service, without secrets
service.py      sends the metrics once a minute, from the process that runs the timer
"""
