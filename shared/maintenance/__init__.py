"""Maintenance: Azure's Scheduled Events are seen, prepared for, approved, and recovered from. docs/explain/maintenance.md is its page.

    agent/            runs on each node: polls, decides, runs hooks, approves, restores, reports
    service/          runs in the app: reports, sweeps, notices, approvals through Azure Resource Manager, Event Grid
    decisions/        parts of `rules`: merging of reports, approvals, the domain guard, monitors, caller probes
    rules             decides about a fleet's maintenance, from the rows that were read: pure
    rows, story       the stored rows of a fleet; `row_kinds` declares them
    settings          the `maintenance` part of a fleet's definition; `stored_settings` stores it, `rule_settings` is what rules read
    model, routes     the API
    latency           histograms of the caller probe
    not_before        reads times as Azure writes them; `azure_names` compares names as Azure does
    timings           time spans and counts

One event: the agent's `imds.client` reads a document that lists it, `agent.decisions.step` starts the prepare hook in time, and
`agent.app.reporter` reports the phase. The app's `service.reports` merges the reports by `rules.receive`, and its answer has holds and
leased approvals. The agent approves, or the app does (`service.arm`) for a fleet with transport `arm`. After the impact the agent runs the
hooks `restore` and `verify`.
"""
