"""Tenants: their settings, keys and channels, and the audit trail. See docs/how-to/give-a-team-a-tenant.md.

    model             bodies and answers, with the limits of a tenant and their bounds
    rules             decisions about keys, secrets and channels: pure
    rows              the stored rows of tenants and keys; `row_kinds` declares all rows
    store             `TenantDirectory`: cached reads for calls and deliveries, and the operations of administrators
    keys              creates, lists and revokes keys
    channel_store     creates, changes, pauses and rotates channels; their circuit breaker and secrets
    cache             the cache of the directory, and one small row that shows which cached rows may have changed
    audit             records of administrative calls, and the route that lists them
    routes            `/v1/tenants`, keys and channels

A call with a key: `TenantDirectory.key` looks the key's SHA-256 up, in the cache or in its row, and the key counts only while its tenant
has the uid that the key names. A delivery asks `TenantDirectory.target` for the channel with its secrets and state.
"""
