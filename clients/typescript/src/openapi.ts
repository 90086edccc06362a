// Written by `make openapi` from docs/reference/openapi.json. Do not edit it.

export interface paths {
    "/api/v1/calendars": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List calendars by name */
        get: operations["calendars_list"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/calendars/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Return a calendar */
        get: operations["calendars_get"];
        /**
         * Create a calendar or replace its dates
         * @description After the answer, every schedule that names it follows it. If the call fails with 503 or without an answer, repeat it.
         */
        put: operations["calendars_put"];
        post?: never;
        /** Delete a calendar that no schedule names */
        delete: operations["calendars_delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/dead-letters": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List events that could not be delivered */
        get: operations["dead_letters_list"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/dead-letters/redrive": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Deliver all dead events that match again; `{}` matches all of them */
        post: operations["dead_letters_redrive"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List events by time, state, channel, labels, beginning of the id, last error, and whether they are held
         * @description Unfinished shards come first, then finished ones. A page may be short, even empty, while `next` is not null. An event that ends between two pages may be shown again: compare ids.
         */
        get: operations["events_list"];
        put?: never;
        /**
         * Schedule an event, or one for each of several channels
         * @description 200 with the stored event if there is one with this id and content. If that one has ended without a delivery, the header `tocsin-conflict` has its state, and `on_conflict` decides. With `collapse`: 200 with the stored event, and no change, if a call that was received later has changed it. Of calls that two processes received within the error of their clocks, the one that is stored later counts. A call that has waited for 10 s is 503.
         */
        post: operations["events_create"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/events/batch": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Schedule several events; each one is accepted or rejected for itself
         * @description A batch that is not finished after 90 s is answered all the same: events that were not stored have the problem `batch-unfinished`. `Retry-After` tells when refused lines may be sent again. A batch has at most 16 MiB, and less where the instances are small: `GET /limits` shows it. The Functions host answers 500 without a body to a larger one.
         */
        post: operations["events_batch"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/events/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Return an event, or a fan-out with all of its events */
        get: operations["events_get"];
        put?: never;
        post?: never;
        /**
         * Cancel an event, or all events of a fan-out: after the answer, no delivery of them starts
         * @description By the id of a fan-out, the answer reports each of its events: one that is being delivered is not cancelled.
         */
        delete: operations["events_delete"];
        options?: never;
        head?: never;
        /**
         * Change or reschedule an event that is not being delivered; by the id of a fan-out, all of its events
         * @description 409 `changed-meanwhile`: the same members were changed by a call that was received later, or another call changed the channel, the payload or the target meanwhile, which must fit together. Of calls that two processes received within the error of their clocks, the one that is stored later counts. Without `If-Match`, a call that has waited for 10 s is 503.
         */
        patch: operations["events_patch"];
        trace?: never;
    };
    "/api/v1/events/{id}/fire": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Deliver an event now, or all events of a fan-out */
        post: operations["events_fire"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/events/{id}/redrive": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Deliver a dead event again, or all dead events of a fan-out */
        post: operations["events_redrive"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/fleet-overview": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the fleets that need a person, the most urgent first, and count the others
         * @description It shows what the sweeps of the last minute have found, without a read of each fleet.
         */
        get: operations["fleet_overview"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/fleets": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List fleets by name */
        get: operations["fleets_list"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/fleets/{fleet}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Return a fleet */
        get: operations["fleets_get"];
        /**
         * Create a fleet, or change it while it runs
         * @description Members that are left out get their defaults. Only a resize changes the partition count. The profile can change only while the fleet has no live server. Partitions without a row get one again.
         */
        put: operations["fleets_put"];
        post?: never;
        /**
         * Delete a fleet that has no live server
         * @description A fleet that is created later under the same name continues with higher epochs.
         */
        delete: operations["fleets_delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/fleets/{fleet}/nodes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List nodes by name, with their heartbeats and partitions */
        get: operations["nodes_list"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/fleets/{fleet}/nodes/{node}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Return everything that is known of a node */
        get: operations["nodes_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/heartbeats/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Return a monitor, as long as its event is kept */
        get: operations["heartbeats_get"];
        put?: never;
        /**
         * Say that a job is alive; an event is delivered if the next call does not come within a time
         * @description 201 for the first call and for the first one after an alarm. 409 with `Retry-After` while the alarm begins: repeat the call. A call changes nothing if one that was received later has.
         */
        post: operations["heartbeats_call"];
        /** End a monitor: no event is delivered until the next call begins it anew */
        delete: operations["heartbeats_delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/history": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Return the outcomes and the lateness of the events that were planned for each minute
         * @description A range holds at most 1,440 minutes; minutes without events are left out. Finished shards are kept for 7 days, those with dead events for 30 days.
         */
        get: operations["history"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List bulk jobs, in no particular order. They are kept for 7 days after their end */
        get: operations["jobs_list"];
        put?: never;
        /**
         * Prepare a bulk job: count the events that match a filter
         * @description Nothing is changed until the count is confirmed. The job shows the count and a sample; a large count takes longer than this call. If ten jobs of the tenant have not ended, the oldest that has waited a minute for its confirmation is cancelled.
         */
        post: operations["jobs_create"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Return a bulk job: its count, its progress, and its report */
        get: operations["jobs_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Stop a bulk job. What it has changed stays changed */
        post: operations["jobs_cancel"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/confirm": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Start a bulk job by confirming its count
         * @description It changes those of the counted events that still match when it comes to them.
         */
        post: operations["jobs_confirm"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/key": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Return what the key of this call permits: its tenant and its scopes */
        get: operations["key_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/limits": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Return the sizes that are accepted: read them before you send a batch of more than 1,000,000 bytes */
        get: operations["limits"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/load": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Return the number of open events that are planned for each minute
         * @description A range holds at most 1,440 minutes. A cancelled event counts until the owner of its shard reads it. An event that will be retried counts for the minute of its shard's earliest next attempt.
         */
        get: operations["load"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/locks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List locks by name */
        get: operations["locks_list"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/locks/{lock}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Return a lock with its waiters */
        get: operations["locks_get"];
        /**
         * Acquire a lock, or renew a grant
         * @description 200: the caller holds the lock until valid_ms after it SENT this request, by its own clock. 202: it waits, and must ask again. 409 lock-held: another caller holds it, and this one does not wait. 409 lock-lost: this grant has ended. The call is safe to repeat.
         */
        put: operations["locks_put"];
        post?: never;
        /**
         * Release a lock, and leave its queue
         * @description The first waiter gets it when it asks next. The attempt of this holder and nonce has ended then, and a request of it that arrives later gets nothing. A token without holder that does not hold the lock is 409 `lock-held`. The call is safe to repeat. The lock's row stays for at least a day, so that later tokens are greater.
         */
        delete: operations["locks_delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/locks/{lock}/revoke": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Let the grant of a lock run out
         * @description The grant cannot be renewed any more. Its holder may rely on it until its validity ends, and nobody gets the lock before that. The call is safe to repeat.
         */
        post: operations["locks_revoke"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/schedules": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the tenant's recurring schedules
         * @description They have no order. A page may be short, even empty, while `next` is not null.
         */
        get: operations["schedules_list"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/schedules/preview": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Return the first occurrences of a schedule that is not stored, without jitter
         * @description The rule has the fields of a schedule without its payload. Channels are not looked up.
         */
        post: operations["schedules_preview_rule"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/schedules/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Return a recurring schedule */
        get: operations["schedules_get"];
        /**
         * Create a recurring schedule or replace its content
         * @description The same content again changes nothing. The occurrence that is about to fire follows the change: it is cancelled and created again.
         */
        put: operations["schedules_put"];
        post?: never;
        /**
         * Delete a recurring schedule: after the answer, no later occurrence is delivered
         * @description An occurrence that is already due and has become an event stays, and so does a delivery in progress. Those that a late sweep is just storing are cancelled, unless `overdue` is `keep`.
         */
        delete: operations["schedules_delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/schedules/{id}/backfill": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Create an event for each occurrence in a range of the past, whether it fired then or not
         * @description At most 1,000 occurrences a call. After a failure, repeat the call with the same `id`.
         */
        post: operations["schedules_backfill"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/schedules/{id}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Pause a schedule: after the answer, no later occurrence is delivered
         * @description An occurrence that is already due and has become an event stays, and so does a delivery in progress.
         */
        post: operations["schedules_pause"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/schedules/{id}/preview": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Return the next occurrences of a schedule, without jitter */
        get: operations["schedules_preview"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/schedules/{id}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Resume a schedule; the occurrences missed during the pause never fire
         * @description It continues with the first occurrence that is still in the future.
         */
        post: operations["schedules_resume"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/schedules/{id}/trigger": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Fire a schedule once now, in addition to its occurrences
         * @description After a failure, repeat the call with the same `id`.
         */
        post: operations["schedules_trigger"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/stats": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Return the number of the tenant's events by state */
        get: operations["stats"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tenant-overview": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List all tenants, those that need a person first
         * @description The figures are at most 10 s old, with a thousand tenants 30 s. `incomplete` says that some could not be counted.
         */
        get: operations["tenants_overview"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tenants": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List tenants by name */
        get: operations["tenants_list"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tenants/{tenant}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Return a tenant */
        get: operations["tenants_get"];
        /**
         * Create a tenant or replace its settings
         * @description If events of a deleted tenant of this name are still kept, the name can be used again only with `inherit`.
         */
        put: operations["tenants_put"];
        post?: never;
        /**
         * Delete a tenant, its keys, its channels and its fleets
         * @description The keys stop working at once. Open events become dead letters, because their channels are gone. The name stays in use until the last event is removed. A tenant cannot be deleted while a server of one of its fleets lives.
         */
        delete: operations["tenants_delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tenants/{tenant}/channels": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List channels by name */
        get: operations["channels_list"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tenants/{tenant}/channels/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Return a channel */
        get: operations["channels_get"];
        /**
         * Create or replace a channel
         * @description Only the answer that creates an http or fleet channel shows its webhook secret. A header value of *** keeps the stored value, if the scheme, host and port of the URL stay. Changed settings close the circuit breaker, and events that it held are delivered at once.
         */
        put: operations["channels_put"];
        post?: never;
        /** Delete a channel */
        delete: operations["channels_delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tenants/{tenant}/channels/{name}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Pause all deliveries to a channel
         * @description The pause takes effect on all instances within a second. The channel's events stay as they are and can be cancelled; they are delivered after the channel is resumed.
         */
        post: operations["channels_pause"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tenants/{tenant}/channels/{name}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Resume deliveries to a channel
         * @description This ends a pause, whether an operator or an answer of 410 caused it, and closes the circuit breaker. Events that are due are delivered at once.
         */
        post: operations["channels_resume"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tenants/{tenant}/channels/{name}/secret/rotate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Create a new webhook secret; the previous one stays valid for 24 hours
         * @description After a failure, repeat the call with the same `id`: another rotation would end the secret that the receiver has.
         */
        post: operations["channels_rotate"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tenants/{tenant}/keys": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List keys by prefix, without the keys themselves */
        get: operations["keys_list"];
        put?: never;
        /** Create a key; the answer is the only place that shows it */
        post: operations["keys_create"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tenants/{tenant}/keys/{prefix}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Revoke a key
         * @description All instances refuse it within 5 seconds.
         */
        delete: operations["keys_delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/work/{tenant}/{place}/{attempt}/complete": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Complete an event
         * @description Needs the attempt's token, from the delivery's header tocsin-completion-token, as Authorization: Bearer. A repetition is harmless.
         */
        post: operations["work_complete"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/work/{tenant}/{place}/{attempt}/fail": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Report that the work on an event has failed
         * @description Needs the attempt's token, from the delivery's header tocsin-completion-token, as Authorization: Bearer. A repetition is harmless.
         */
        post: operations["work_fail"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/work/{tenant}/{place}/{attempt}/heartbeat": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Extend the time of the work on an event
         * @description Needs the attempt's token, from the delivery's header tocsin-completion-token, as Authorization: Bearer. A repetition is harmless.
         */
        post: operations["work_heartbeat"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** @description The head of a receiver's answer. The secrets of the channel are masked in it. */
        AnswerOut: {
            content_type?: string;
            /** @description The beginning, at most 4 KiB. Missing for a compressed body. */
            body?: string;
            /** @description True if the body goes on. */
            truncated?: boolean;
            /** @description Only if the channel asks for them (`answer_headers`). */
            headers?: {
                [key: string]: string;
            };
        };
        AnyVerb: components["schemas"]["PartitionVerb"] | components["schemas"]["ServerVerb"];
        /** @description One delivery attempt. */
        AttemptOut: {
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            at: string;
            /** @enum {string} */
            outcome: "delivered" | "retry" | "final" | "unknown" | "working" | "stale";
            status?: number;
            error?: string;
            took_ms: number;
            /** @description In `GET /events/{id}` only, for attempts whose channel keeps it (`answers`). */
            answer?: components["schemas"]["AnswerOut"];
        };
        /** @description A range in the past whose occurrences become events now. */
        BackfillIn: {
            /**
             * Format: date-time
             * @description The first time of the range.
             * @example 2026-11-21T10:21:55.250Z
             */
            from: string;
            /**
             * Format: date-time
             * @description The end of the range, exclusive; not later than now.
             * @example 2026-11-21T10:21:55.250Z
             */
            to: string;
            /** @description Names this backfill in the events' ids, so that it can be repeated without doubling any. Null: a new name. */
            id?: string;
            /**
             * @description Deliver the events evenly over this time, instead of at once. Default: `PT0S`.
             * @example PT30S
             */
            spread?: string;
        };
        /** @description The events of a backfill. */
        BackfillOut: {
            id: string;
            created: number;
            /** @description Events that an earlier call of the same id made. */
            existing: number;
        };
        /** @description The result of one event of a batch. */
        BatchLine: {
            index: number;
            status: number;
            id?: string;
            /**
             * @description The state of the event that has this id already and ended without a delivery: nothing is scheduled.
             * @enum {string}
             */
            ended?: "dead" | "cancelled" | "lapsed";
            problem?: components["schemas"]["ProblemLine"];
        };
        /** @description The results of a batch: one line per event, in the order sent. */
        BatchOut: {
            accepted: number;
            rejected: number;
            results: components["schemas"]["BatchLine"][];
        };
        /** @description The last heartbeat of a node. */
        BeatOut: {
            seq: number;
            /** @description Age by the storage service's clock. */
            age_ms: number;
            state: components["schemas"]["ServerState"];
            incarnation: string;
            fault_domain: string;
            /** @description Partitions that the server can own. 0: no limit of its own. */
            capacity: number;
            /** @description Address at which the server takes deliveries of fleet channels. */
            endpoint?: string;
            load: number;
            /** @description true: the server runs the library and can scan the others. false: it speaks HTTP. */
            scans: boolean;
        };
        /** @description A channel that delivers nothing. */
        BlockedOut: {
            channel: string;
            state: components["schemas"]["HoldReason"];
        };
        /** @enum {string} */
        BulkAction: "cancel" | "move" | "redrive" | "fire";
        /** @description The confirmation of a job's count. */
        BulkConfirmIn: {
            /** @description As the counted job shows it. */
            confirmation: string;
        };
        /** @description An event that a job could not change. */
        BulkFailure: {
            id: string;
            reason: string;
        };
        /** @description The events that a job acts on: those that match all of this. */
        BulkFilter: {
            /** @description Due at this time or later. */
            from?: string | null;
            /** @description Due before this time. */
            to?: string | null;
            /** @description Default: dead to redrive; scheduled or retrying for the other actions. */
            state?: components["schemas"]["EventState"] | null;
            channel?: string | null;
            labels?: {
                [key: string]: string;
            };
            id_prefix?: string | null;
            error?: string | null;
        };
        /** @description A job to prepare: it counts the events that match, and acts on them once the count is confirmed. */
        BulkIn: {
            action: components["schemas"]["BulkAction"];
            /** @description `{}` matches all events that the action can change. */
            filter: components["schemas"]["BulkFilter"];
            /**
             * Format: date-time
             * @description To move: the new due time.
             * @example 2026-11-21T10:21:55.250Z
             */
            due?: string;
            /**
             * @description To move: how much later.
             * @example PT30S
             */
            later?: string;
            /**
             * @description To move: how much earlier. An event that is then overdue is delivered at once.
             * @example PT30S
             */
            earlier?: string;
        };
        /** @description A page of jobs. */
        BulkList: {
            items: components["schemas"]["BulkOut"][];
            next: string | null;
        };
        /** @description A bulk job. */
        BulkOut: {
            id: string;
            action: components["schemas"]["BulkAction"];
            filter: components["schemas"]["BulkFilter"];
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            due?: string;
            /** @example PT30S */
            later?: string;
            /** @example PT30S */
            earlier?: string;
            state: components["schemas"]["BulkState"];
            /** @description Events that matched; while counting, so far. */
            count: number;
            /** @description Up to 10 of them. */
            sample: components["schemas"]["SampleOut"][];
            /** @description While counted: to be sent to `confirm`, within an hour. */
            confirmation?: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            created: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            started?: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            ended?: string;
            /** @description Events that were changed. */
            done: number;
            /** @description Events that no longer matched when the job came to them, or had changed. */
            skipped: number;
            failed: number;
            /** @description Skipped and failed events by reason. */
            reasons: {
                [key: string]: number;
            };
            /** @description The first 20 failed events. */
            failures: components["schemas"]["BulkFailure"][];
            /** @description True if more than 1,000,000 events match: the job takes the first ones. */
            more?: boolean;
        };
        /** @enum {string} */
        BulkState: "counting" | "counted" | "running" | "done" | "cancelled" | "expired";
        /** @description The dates of a calendar. */
        CalendarIn: {
            dates: string[];
        };
        /** @description A page of calendars. */
        CalendarList: {
            items: components["schemas"]["CalendarOut"][];
            next: string | null;
        };
        /** @description A calendar as stored, its dates in order. */
        CalendarOut: {
            dates: string[];
            name: string;
        };
        /** @description A request that agents make as a caller does, before and during maintenance. Either `url` or `command`. */
        CallerProbe: {
            /** @description Address for a GET. The files of the nodes must allow its host in `probe.hosts`. */
            url?: string;
            /** @description Name of a command in `probe.commands` of the nodes' files. The command itself is set there only. */
            command?: string;
            /**
             * @description Time from the start of one probe to the start of the next. Default: `PT1S`.
             * @example PT30S
             */
            every?: string;
            /**
             * @description A probe without an answer for this time has failed. Default: `PT5S`.
             * @example PT30S
             */
            timeout?: string;
            /** @description A rehearsal in which a bound is passed has failed. */
            bound?: components["schemas"]["ProbeBound"];
        };
        /** @description Treatment of missed occurrences: more than a minute late, without jitter, because no sweep ran. A paused schedule misses nothing. */
        CatchUp: {
            /** @description none: drop them. last: fire only the latest. all: fire each of them, in order. Default: `last`. */
            policy?: components["schemas"]["Policy"];
            /**
             * @description Drop occurrences missed longer ago than this. Default: `P1D`.
             * @example PT30S
             */
            within?: string;
        };
        /** @description The limits of a channel's receiver, over all instances. Null means no limit of its own; its tenant's limits always apply. */
        ChannelLimits: {
            deliveries_per_second?: number | null;
            /** @description Deliveries in flight. */
            concurrency?: number | null;
        };
        /** @description A page of channels. */
        ChannelList: {
            items: (components["schemas"]["HttpChannelOut"] | components["schemas"]["FleetChannelOut"] | components["schemas"]["QueueChannelOut"] | components["schemas"]["EventGridChannelOut"] | components["schemas"]["KafkaChannelOut"] | components["schemas"]["ServiceBusChannelOut"])[];
            next: string | null;
        };
        /** @description One channel: its state, and its events of finished shards. */
        ChannelStats: {
            state: ("ok" | "removed") | components["schemas"]["HoldReason"];
            /** @description Due events that wait for the channel; see `held_partial`. */
            held: number;
            delivered: number;
            dead: number;
            late_ms: components["schemas"]["LateOut"];
        };
        /** @enum {string} */
        ClockChange: "gap" | "fold";
        /** @description An audience for which a tenant's channels may get tokens, and the hosts that may get them. */
        EntraAudience: {
            /** @example api://orders */
            audience: string;
            /**
             * @example [
             *       "orders.example.com"
             *     ]
             */
            hosts: string[];
        };
        /** @description A channel that publishes CloudEvents to an Event Grid topic with the app's identity. */
        EventGridChannel: {
            limits?: components["schemas"]["ChannelLimits"];
            /** @description Limits of the events with the same `ordering_key`. */
            per_key?: components["schemas"]["KeyLimits"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "eventgrid";
            endpoint: string;
        };
        /** @description An Event Grid channel as stored. */
        EventGridChannelOut: {
            name: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            created: string;
            paused: boolean;
            reason?: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            paused_at?: string;
            flow: components["schemas"]["FlowOut"];
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            rotated_at?: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            previous_until?: string;
            /** @description The webhook secret; only the answer that creates the channel shows it. */
            secret?: string;
            limits?: components["schemas"]["ChannelLimits"];
            /** @description Limits of the events with the same `ordering_key`. */
            per_key?: components["schemas"]["KeyLimits"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "eventgrid";
            endpoint: string;
        };
        /** @description An event to be scheduled, with exactly one of `due` and `delay`. */
        EventIn: {
            /** @description Chosen by the client. The same id with the same content answers 200. */
            id?: string;
            /**
             * Format: date-time
             * @description The time of the delivery. An event with a past time is delivered at once.
             * @example 2026-11-21T10:21:55.250Z
             */
            due?: string;
            /**
             * @description Deliver this long after the request is accepted.
             * @example PT30S
             */
            delay?: string;
            /** @description Default: `default`. */
            channel?: string;
            /** @description Instead of `channel`: one event for each of these channels, all stored or none acknowledged. */
            channels?: string[];
            /**
             * @description The event lapses if it is not delivered within this time after `due`. Left out: as its tenant says; null: never.
             * @example PT30S
             */
            expires?: string;
            /**
             * @description Deliver anywhere in [due, due + flex), at a time that follows from the id. At most P30D, and no more than expires.
             * @example PT30S
             */
            flex?: string;
            /**
             * @description The event's durability when it is acknowledged; at least the tenant's own.
             * @enum {string}
             */
            durability?: "fast" | "standard" | "mirrored";
            retry?: components["schemas"]["RetryIn"];
            /**
             * @description Http and fleet channels only: the longest time that an attempt may take, instead of the channel's own.
             * @example PT30S
             */
            timeout?: string;
            labels?: {
                [key: string]: string;
            };
            /** @description Events with the same key share the channel's limits per key (`per_key`). */
            ordering_key?: string;
            /**
             * @description Replace an event of this id that has not been claimed. It is due at most this long after the first of them.
             * @example PT30S
             */
            collapse?: string;
            /** @description The treatment of an event of this id that has ended without a delivery. keep: 200 with that event, and its state in the header tocsin-conflict; nothing is scheduled. error: 409. redrive: deliver it again if it is dead. Not in batches. Default: `keep`. */
            on_conflict?: components["schemas"]["OnConflict"];
            /** @description Http channels only: a path, query, method and headers of this event. */
            target?: components["schemas"]["EventTarget"];
            /** @description Any JSON. It is delivered byte for byte as sent. Needed, but for the methods GET, which has none, and DELETE. */
            payload?: unknown;
            /** @description Channel that gets a callback, an event with the outcome, after a delivery. */
            on_delivered?: string;
            /** @description Channel that gets a callback if this event ends without a delivery: dead or lapsed. */
            on_dead?: string;
            /** @description Sends the bytes of which `payload` is the base64, with this type, instead of the payload as JSON. */
            content_type?: string;
        };
        /** @description A page of events. Their order is undefined across shards. */
        EventList: {
            items: components["schemas"]["EventOut"][];
            next: string | null;
            /** @description True if the page ended at a bound on what one request reads: more events may match. Go on with `next`. */
            incomplete?: boolean;
        };
        /** @description An event with its current state. */
        EventOut: {
            id: string;
            tenant: string;
            state: components["schemas"]["EventState"];
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            due: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            created: string;
            /** @description Missing while queued, like payload and attempts. Channel and payload stay missing if it was cancelled then. */
            channel?: string;
            payload?: unknown;
            /** @description The type of the bytes of which the payload is the base64. Missing for JSON. */
            content_type?: string;
            /**
             * @description Missing if standard.
             * @enum {string}
             */
            durability?: "fast" | "standard" | "mirrored";
            /** @example PT30S */
            expires?: string;
            /** @example PT30S */
            flex?: string;
            /**
             * Format: date-time
             * @description With flex: the planned time in the window. Lateness counts from here.
             * @example 2026-11-21T10:21:55.250Z
             */
            planned?: string;
            retry?: components["schemas"]["RetryIn"];
            /** @example PT30S */
            timeout?: string;
            labels?: {
                [key: string]: string;
            };
            ordering_key?: string;
            /** @description The id of the fan-out that the event is one of. */
            fanout?: string;
            /** @example PT30S */
            collapse?: string;
            target?: components["schemas"]["EventTarget"];
            on_delivered?: string;
            on_dead?: string;
            /** @description The id of the callback that reports this event's end, once it is stored. */
            callback?: string;
            /** @description The id of the event that a callback reports on. */
            callback_of?: string;
            /** @description The kind of a notice. */
            notice?: components["schemas"]["NoticeKind"];
            /** @description The last 20. One with outcome unknown may have delivered the event, even if the state is dead or lapsed. */
            attempts?: components["schemas"]["AttemptOut"][];
            /**
             * Format: date-time
             * @description While the event is retrying and not held.
             * @example 2026-11-21T10:21:55.250Z
             */
            next_attempt?: string;
            /** @description While the event is due and its channel lets nothing through. Not part of the ETag. */
            held?: components["schemas"]["HeldOut"];
            /** @description While a receiver works on the event. */
            work?: components["schemas"]["WorkOut"];
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            delivered_at?: string;
            late_ms?: number;
            /** @description The parts of its lateness, the longest first. Of a delivered event they add up to `late_ms`, up to 100 ms. */
            late_because?: components["schemas"]["LateReasonOut"][];
            error?: string;
        };
        /** @description The fields of an unclaimed event that may be changed. */
        EventPatch: {
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            due?: string;
            /** @example PT30S */
            delay?: string;
            payload?: unknown;
            /** @description Null: the payload is sent as JSON. */
            content_type?: string | null;
            channel?: string;
            /** @description Null: it never lapses. */
            expires?: string | null;
            /** @description Replaces all of it. Null: its tenant's policy. */
            retry?: components["schemas"]["RetryIn"] | null;
            /** @description Null: the channel's own. */
            timeout?: string | null;
            /** @description Null: the channel's own URL and POST again. */
            target?: components["schemas"]["EventTarget"] | null;
            /** @description Null: no callback after a delivery. */
            on_delivered?: string | null;
            /** @description Null: no callback if the event is dead or lapsed. */
            on_dead?: string | null;
        };
        /** @enum {string} */
        EventState: "queued" | "scheduled" | "firing" | "working" | "retrying" | "delivered" | "dead" | "cancelled" | "lapsed";
        /** @description The parts of a request that an event sets. Scheme, host and the beginning of the path are always those of its http channel. */
        EventTarget: {
            /**
             * @description Appended to the path of the channel's URL. Begins with a slash.
             * @example /orders/17
             */
            path?: string;
            /** @description Added to the query of the channel's URL, which must have none of these names. */
            query?: {
                [key: string]: string;
            };
            /**
             * @description Default: `POST`.
             * @enum {string}
             */
            method?: "POST" | "PUT" | "PATCH" | "GET" | "DELETE";
            /** @description Added to the channel's headers, which must have none of these names. */
            headers?: {
                [key: string]: string;
            };
        };
        /** @description Days without occurrences, in the schedule's time zone; UTC with `every`. */
        Exclusions: {
            dates?: string[];
            /** @description Names of calendars of the tenant. */
            calendars?: string[];
        };
        /** @description The end of work that has failed. */
        FailIn: {
            /** @description Shown with the attempt. Default: `the receiver reported that its work failed`. */
            error?: string;
            /** @description False: the event is dead at once. Default: `true`. */
            retry?: boolean;
            /**
             * @description Shortest time until the next attempt, within the retry policy.
             * @example PT30S
             */
            retry_after?: string;
        };
        /** @description The result of a change for one event of a fan-out. */
        FanoutLine: {
            id: string;
            channel: string;
            /** @description As the same call by the event's own id answers. */
            status: number;
            /** @description The event's state after the call. Missing if the event is not stored. */
            state?: components["schemas"]["EventState"];
            problem?: components["schemas"]["ProblemLine"];
        };
        /** @description A fan-out: an event for each of its channels. */
        FanoutOut: {
            id: string;
            tenant: string;
            channels: string[];
            /** @description In the order of the channels. An event is missing after its retention. */
            events: components["schemas"]["EventOut"][];
        };
        /** @description The results of a change, one for each event of a fan-out. */
        FanoutReport: {
            id: string;
            changed: number;
            results: components["schemas"]["FanoutLine"][];
        };
        /** @description One fault and its place. */
        FieldError: {
            /** @description JSON Pointer into the body; `?name`: query parameter; `{name}`: path; `@name`: header. */
            pointer: string;
            detail: string;
        };
        /** @description A channel that sends signed CloudEvents by POST to the server that owns the partition of the event's `ordering_key`. */
        FleetChannel: {
            limits?: components["schemas"]["ChannelLimits"];
            /** @description Limits of the events with the same `ordering_key`. */
            per_key?: components["schemas"]["KeyLimits"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "fleet";
            /** @description A fleet of the channel's tenant. Its servers publish their endpoints with their heartbeats. */
            fleet: string;
            /** @description Path of the deliveries at each server. Default: `/`. */
            path?: string;
            headers?: {
                [key: string]: string;
            };
            /**
             * @description Default: `PT15S`.
             * @example PT30S
             */
            timeout?: string;
            /**
             * @description The attempts whose answer's head (content type, up to 4 KiB of the body) is kept with the attempt. Default: `failed`.
             * @enum {string}
             */
            answers?: "failed" | "all" | "none";
            /** @description Keep the answer's header fields too. Default: `false`. */
            answer_headers?: boolean;
            /** @description Answers after which an event is not tried again, besides 410; an empty list means that only 410 ends it. Left out: 400, 405, 406, 410, 413, 414, 415, 422, 501. */
            final_statuses?: number[];
        };
        /** @description A fleet channel as stored. The values of its headers are secrets and are shown as `***`. */
        FleetChannelOut: {
            name: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            created: string;
            paused: boolean;
            reason?: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            paused_at?: string;
            flow: components["schemas"]["FlowOut"];
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            rotated_at?: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            previous_until?: string;
            /** @description The webhook secret; only the answer that creates the channel shows it. */
            secret?: string;
            limits?: components["schemas"]["ChannelLimits"];
            /** @description Limits of the events with the same `ordering_key`. */
            per_key?: components["schemas"]["KeyLimits"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "fleet";
            /** @description A fleet of the channel's tenant. Its servers publish their endpoints with their heartbeats. */
            fleet: string;
            /** @description Path of the deliveries at each server. Default: `/`. */
            path?: string;
            headers?: {
                [key: string]: string;
            };
            /**
             * @description Default: `PT15S`.
             * @example PT30S
             */
            timeout?: string;
            /**
             * @description The attempts whose answer's head (content type, up to 4 KiB of the body) is kept with the attempt. Default: `failed`.
             * @enum {string}
             */
            answers?: "failed" | "all" | "none";
            /** @description Keep the answer's header fields too. Default: `false`. */
            answer_headers?: boolean;
            /** @description Answers after which an event is not tried again, besides 410; an empty list means that only 410 ends it. Left out: 400, 405, 406, 410, 413, 414, 415, 422, 501. */
            final_statuses?: number[];
        };
        /** @description Settings of a fleet's checkpoint turns. */
        FleetCheckpoints: {
            timeout?: components["schemas"]["TurnTimeout"];
            /** @description Largest relative deviation of a replica's clock from true time. Default: `0.3`. */
            drift?: number;
            /**
             * @description A replica that has not reported for this long counts as down. Default: `PT1M`.
             * @example PT30S
             */
            silence?: string;
            /** @description A secondary that lags further behind gets no turn. null: no bound. */
            max_lag?: number | null;
            /**
             * @description Least time from one turn's grant to the next. Without it, turns follow one another.
             * @example PT30S
             */
            interval?: string;
        };
        /** @description The definition of a fleet. All fields except `partitions` are optional. */
        FleetIn: {
            partitions: number;
            /** @description Default: `default`. */
            profile?: ("economy" | "default" | "fast" | "seed") | components["schemas"]["ProfileIn"];
            limits?: components["schemas"]["FleetLimits"];
            servers?: components["schemas"]["FleetServers"];
            checkpoints?: components["schemas"]["FleetCheckpoints"];
            maintenance?: components["schemas"]["FleetMaintenance"];
            notify?: components["schemas"]["Notify"];
        };
        /** @description Limits of moves. */
        FleetLimits: {
            /** @description Partitions that one server may own. null: partitions / minimum, rounded up. */
            max_per_server?: number | null;
            /** @description Partitions that a server with the library claims in one heartbeat. Default: `8`. */
            claims_per_cycle?: number;
            /** @description Moves per minute that only balance. Default: `32`. */
            moves_per_minute?: number;
            /** @description Maximum duration of a hand-off. null: PT10S, or two thirds of the validity if that is less. */
            drain?: string | null;
        };
        /** @description A page of fleets. */
        FleetList: {
            items: components["schemas"]["FleetOut"][];
            next: string | null;
        };
        /** @description Settings for Azure's Scheduled Events. */
        FleetMaintenance: {
            /**
             * @description Time before NotBefore at which a node prepares. Default: `PT30S`.
             * @example PT30S
             */
            lead?: string;
            /** @description Lead times by type of event. They override `lead`. */
            leads?: {
                [key: string]: string;
            };
            /** @description A node that cannot reach Tocsin does not approve an event by itself after preparing for it. Default: `false`. */
            require_central?: boolean;
            /**
             * @description Path of approvals to Azure: relay (a node's agent) or arm (Azure Resource Manager). Default: `relay`.
             * @enum {string}
             */
            transport?: "relay" | "arm";
            /**
             * @description Time for which a restored node counts as down, unless it reports earlier that it has caught up. Default: `PT10M`.
             * @example PT30S
             */
            catch_up?: string;
            quorum?: components["schemas"]["Quorum"];
            /** @description Decisions of the domain guard: approve (approvals only) or prepare (also which nodes may prepare). A new fleet has prepare unless it names approve; a change that leaves it out keeps the stored value. Not shown: approve. */
            guard?: components["schemas"]["GuardMode"];
            /**
             * @description Silence of an agent after which its node does not delay the approval of a user's event. Default: `PT30S`.
             * @example PT30S
             */
            silence?: string;
            /** @description Treatment of an event that also names a VM without an agent in any fleet of the tenant: hold (until NotBefore) or ignore (approve once all known nodes are ready). Default: `hold`. */
            strangers?: components["schemas"]["Strangers"];
            /** @description Events are approved before their time, one fault domain after the other. Default: `false`. */
            early?: boolean;
            rules?: components["schemas"]["MaintenanceRule"][];
            /** @description Measures callers' latency before and during maintenance. */
            probe?: components["schemas"]["CallerProbe"];
        };
        /** @description A fleet that needs a person. */
        FleetNeeds: {
            fleet: string;
            /** @enum {string} */
            urgency: "urgent" | "soon" | "later";
            needs: components["schemas"]["NeedOut"][];
            /** @description Nodes with an agent. */
            agents: number;
            /** @description Open Scheduled Events. */
            open_events: number;
        };
        /** @description A stored fleet. */
        FleetOut: {
            partitions: number;
            /** @description Default: `default`. */
            profile?: ("economy" | "default" | "fast" | "seed") | components["schemas"]["ProfileIn"];
            limits?: components["schemas"]["FleetLimits"];
            servers?: components["schemas"]["FleetServers"];
            checkpoints?: components["schemas"]["FleetCheckpoints"];
            maintenance?: components["schemas"]["FleetMaintenance"];
            notify?: components["schemas"]["Notify"] | null;
            name: string;
            /** @description Generation of the partition count. A resize increments it. */
            generation: number;
            /** @description Progress of a resize that is under way. */
            resizing?: components["schemas"]["ResizingOut"];
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            created: string;
        };
        /** @description The fleets of a tenant that need a person, the most urgent first, and the number of all. Only `items` is paged. */
        FleetOverview: {
            items: components["schemas"]["FleetNeeds"][];
            next: string | null;
            fleets: number;
            /** @description Fleets that need nobody. */
            quiet: number;
            /** @description Fleets with open Scheduled Events. */
            in_maintenance: number;
            /** @description All fleets by name, if the request asks for them. */
            names?: string[];
        };
        /** @description The number of servers that a fleet should have. */
        FleetServers: {
            /** @description Servers that the fleet needs. Default: `1`. */
            minimum?: number;
            /** @description Additional servers. Fewer than minimum + spare raise an alarm. Default: `0`. */
            spare?: number;
        };
        /** @description The circuit breaker of a channel, shared by all instances. The other fields exist only while the breaker is not closed. */
        FlowOut: {
            /** @enum {string} */
            breaker: "closed" | "open" | "half-open";
            /**
             * Format: date-time
             * @description Time at which the breaker opened.
             * @example 2026-11-21T10:21:55.250Z
             */
            since?: string;
            /**
             * Format: date-time
             * @description Open: time at which a probe may start. Half-open: time at which the probe is abandoned.
             * @example 2026-11-21T10:21:55.250Z
             */
            until?: string;
            /** @description Failures that opened the breaker, and failed probes since then. */
            failures?: number;
            /** @description The last failure. */
            error?: string;
        };
        /** @enum {string} */
        GuardMode: "approve" | "prepare";
        /** @description A call of a monitor. */
        HeartbeatIn: {
            /**
             * @description The next call must come within this time.
             * @example PT30S
             */
            within: string;
            /** @description Channel of the event that is delivered otherwise. Default: `default`. */
            channel?: string;
            /** @description Any JSON. It is delivered as sent, as the member `payload` of the event's payload. */
            payload?: unknown;
        };
        /** @description A monitor. */
        HeartbeatOut: {
            name: string;
            /** @description silent: no call came in time. The event is being delivered, or has been. */
            state: components["schemas"]["HeartbeatState"];
            /**
             * Format: date-time
             * @description The event's due time: when the next call must have come.
             * @example 2026-11-21T10:21:55.250Z
             */
            due: string;
            channel: string;
            /** @description The id of the event: `GET /events/{id}` shows its attempts. */
            event?: string;
        };
        /** @enum {string} */
        HeartbeatState: "alive" | "silent";
        /**
         * @description The reason why a due event is not delivered: its channel is paused or has a breaker that is not closed, or it waits for other
         *     events of its key or schedule, or for a server that owns its key's partition.
         */
        HeldOut: {
            reason: components["schemas"]["HoldReason"] | ("ordering-key" | "overlap" | "partition-owner");
            /**
             * Format: date-time
             * @description Time at which a delivery may probe the receiver, or the key's rate allows the next one.
             * @example 2026-11-21T10:21:55.250Z
             */
            until?: string;
            /**
             * Format: date-time
             * @description With reasons `ordering-key` and `overlap`, in `GET /events/{id}` only: time since which it waits.
             * @example 2026-11-21T10:21:55.250Z
             */
            since?: string;
            /** @description The id of the event that it waits for. */
            behind?: string;
            /** @description With reason `partition-owner`, in `GET /events/{id}` only: why the partition cannot be delivered to. */
            detail?: string;
        };
        /** @description The results of the events that were planned for one minute. */
        HistoryMinute: {
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            minute: string;
            accepted: number;
            /** @description Events without a final state. */
            open: number;
            delivered: number;
            dead: number;
            lapsed: number;
            cancelled: number;
            /** @description Rescheduled for another minute or redriven; they count there. */
            moved: number;
            /** @description Events of finished shards without a final state. Anything but 0 is a bug of the service. */
            gap: number;
            /** @description Lateness in finished shards. */
            late_ms: components["schemas"]["LateOut"];
        };
        /** @description The minutes of the range that have events, in order. */
        HistoryOut: {
            items: components["schemas"]["HistoryMinute"][];
        };
        /** @enum {string} */
        HoldReason: "paused" | "breaker-open" | "breaker-half-open";
        /** @description A channel that sends signed CloudEvents by POST. */
        HttpChannel: {
            limits?: components["schemas"]["ChannelLimits"];
            /** @description Limits of the events with the same `ordering_key`. */
            per_key?: components["schemas"]["KeyLimits"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "http";
            url: string;
            headers?: {
                [key: string]: string;
            };
            /**
             * @description Default: `PT15S`.
             * @example PT30S
             */
            timeout?: string;
            /**
             * @description The attempts whose answer's head (content type, up to 4 KiB of the body) is kept with the attempt. Default: `failed`.
             * @enum {string}
             */
            answers?: "failed" | "all" | "none";
            /** @description Keep the answer's header fields too. Default: `false`. */
            answer_headers?: boolean;
            /** @description Answers after which an event is not tried again, besides 410; an empty list means that only 410 ends it. Left out: 400, 405, 406, 410, 413, 414, 415, 422, 501. */
            final_statuses?: number[];
            /** @description Name of a client certificate that the operator has listed for the tenant; https only. */
            client_certificate?: string;
            /** @description Left out: a 202 is a delivery like any other 2xx. */
            long_work?: components["schemas"]["LongWork"];
            /** @description Each delivery carries a token of Entra for this audience. Its tenant's `entra_audiences` must list it with the host. */
            entra_audience?: string;
        };
        /** @description An http channel as stored. The values of its headers are secrets and are shown as `***`. */
        HttpChannelOut: {
            name: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            created: string;
            paused: boolean;
            reason?: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            paused_at?: string;
            flow: components["schemas"]["FlowOut"];
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            rotated_at?: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            previous_until?: string;
            /** @description The webhook secret; only the answer that creates the channel shows it. */
            secret?: string;
            limits?: components["schemas"]["ChannelLimits"];
            /** @description Limits of the events with the same `ordering_key`. */
            per_key?: components["schemas"]["KeyLimits"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "http";
            url: string;
            headers?: {
                [key: string]: string;
            };
            /**
             * @description Default: `PT15S`.
             * @example PT30S
             */
            timeout?: string;
            /**
             * @description The attempts whose answer's head (content type, up to 4 KiB of the body) is kept with the attempt. Default: `failed`.
             * @enum {string}
             */
            answers?: "failed" | "all" | "none";
            /** @description Keep the answer's header fields too. Default: `false`. */
            answer_headers?: boolean;
            /** @description Answers after which an event is not tried again, besides 410; an empty list means that only 410 ends it. Left out: 400, 405, 406, 410, 413, 414, 415, 422, 501. */
            final_statuses?: number[];
            /** @description Name of a client certificate that the operator has listed for the tenant; https only. */
            client_certificate?: string;
            /** @description Left out: a 202 is a delivery like any other 2xx. */
            long_work?: components["schemas"]["LongWork"];
            /** @description Each delivery carries a token of Entra for this audience. Its tenant's `entra_audiences` must list it with the host. */
            entra_audience?: string;
        };
        /** @description A manual control in force, or one that was revoked. */
        IntentOut: {
            verb: components["schemas"]["AnyVerb"] | "maintain";
            /** @description A partition's number, or a server's name. */
            target: number | string;
            /** @description The server of a control on a partition. */
            server?: string;
            exit?: boolean;
            /** @description The server that gets a drained server's partitions. */
            to?: string;
            note: string;
            /** @description Prefix of the key that made the request. */
            author: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            created: string;
            expires: string | null;
        };
        /** @description A channel that sends CloudEvents to a Kafka topic: in an Event Hubs namespace, or at brokers on the egress allow-list. */
        KafkaChannel: {
            limits?: components["schemas"]["ChannelLimits"];
            /** @description Limits of the events with the same `ordering_key`. */
            per_key?: components["schemas"]["KeyLimits"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "kafka";
            /** @example name.servicebus.windows.net:9093 */
            servers: string;
            topic: string;
            /** @description JSON pointer to the message's key in the payload (same key, same partition). Null: the key is the event's id. */
            key?: string;
            /** @description Default: `true`. */
            tls?: boolean;
            username?: string;
            password?: string;
        };
        /** @description A kafka channel as stored. Its password is shown as `***`. */
        KafkaChannelOut: {
            name: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            created: string;
            paused: boolean;
            reason?: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            paused_at?: string;
            flow: components["schemas"]["FlowOut"];
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            rotated_at?: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            previous_until?: string;
            /** @description The webhook secret; only the answer that creates the channel shows it. */
            secret?: string;
            limits?: components["schemas"]["ChannelLimits"];
            /** @description Limits of the events with the same `ordering_key`. */
            per_key?: components["schemas"]["KeyLimits"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "kafka";
            /** @example name.servicebus.windows.net:9093 */
            servers: string;
            topic: string;
            /** @description JSON pointer to the message's key in the payload (same key, same partition). Null: the key is the event's id. */
            key?: string | null;
            /** @description Default: `true`. */
            tls?: boolean;
            username?: string | null;
            password?: string | null;
        };
        /** @description A key to create. Scope `agent` needs a fleet and a node, and excludes `fleets` and `admin`. */
        KeyIn: {
            /**
             * @description `read`: every GET that `events` or `fleets` permits. `metrics`: GET /metrics alone.
             * @example [
             *       "events"
             *     ]
             */
            scopes: ("events" | "fleets" | "agent" | "read" | "metrics" | "admin")[];
            fleet?: string;
            node?: string;
            note?: string;
            /**
             * Format: date-time
             * @description The time at which the key ends. Null: when it is revoked.
             * @example 2026-11-21T10:21:55.250Z
             */
            expires?: string;
        };
        /** @description The limits of the events with one ordering key, over all instances. Events without a key are not concerned. */
        KeyLimits: {
            /** @description Deliveries in flight. */
            concurrency?: number;
            deliveries_per_second?: number;
            /** @description One at a time, in the order of due times. Default: `false`. */
            ordered?: boolean;
            /** @description If ordered: while an event waits for a retry, those behind it wait too. Default: `true`. */
            failed_blocks?: boolean;
        };
        /** @description A page of keys. */
        KeyList: {
            items: components["schemas"]["KeyOut"][];
            next: string | null;
        };
        /** @description A new key. Only this answer shows `key`. */
        KeyMade: {
            prefix: string;
            scopes: ("events" | "fleets" | "agent" | "read" | "metrics" | "admin")[];
            fleet?: string;
            node?: string;
            note?: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            created: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            expires?: string;
            /** @description The last day (UTC) on which the key was used, such as 2026-11-23. */
            last_used?: string;
            key: string;
        };
        /** @description A key in a list, with its prefix only. */
        KeyOut: {
            prefix: string;
            scopes: ("events" | "fleets" | "agent" | "read" | "metrics" | "admin")[];
            fleet?: string;
            node?: string;
            note?: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            created: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            expires?: string;
            /** @description The last day (UTC) on which the key was used, such as 2026-11-23. */
            last_used?: string;
        };
        /** @description Lateness in milliseconds, from a histogram: upper bounds of the buckets. */
        LateOut: {
            p50: number | null;
            p99: number | null;
            max: number | null;
        };
        /** @description A part of an event's lateness. */
        LateReasonOut: {
            /** @enum {string} */
            reason: "accepted-late" | "paused" | "breaker" | "owner-lost" | "rate" | "concurrency" | "storage" | "ordering-key" | "partition-owner" | "not-taken" | "retry" | "other";
            ms: number;
            text: string;
        };
        /** @description The limits of a tenant. Null: only the limits of the product apply. */
        Limits: {
            events_per_second?: number | null;
            open_events?: number | null;
            /** @description Most recurring schedules; by default 10,000. */
            schedules?: number;
            /** @description Most partitions of all its fleets together; by default 20,000. */
            partitions?: number;
            /** @description Most fleets; by default 100. */
            fleets?: number;
            /** @description Most nodes of a fleet with an agent; by default 1,000. */
            agents?: number;
            /** @description Most servers of a fleet over HTTP; by default 1,000. */
            servers?: number;
            /** @description Most locks; by default 10,000. */
            locks?: number;
            payload_bytes?: number | null;
            deliveries_per_second?: number | null;
            concurrency?: number | null;
        };
        /** @description One minute, and the number of open events filed for it. */
        LoadMinute: {
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            minute: string;
            scheduled: number;
        };
        /** @description Every minute of the range in order, including minutes without events. */
        LoadOut: {
            items: components["schemas"]["LoadMinute"][];
            /** @description True if not all shards were counted in time: some minutes have more. Otherwise left out. Default: `false`. */
            incomplete?: boolean;
        };
        /** @description The caller holds the lock. */
        LockHeldOut: {
            /**
             * @description Default: `held`.
             * @constant
             */
            state?: "held";
            /** @description Fencing token: greater than that of every earlier grant of this lock. */
            token: number;
            /** @description Validity in milliseconds. The caller counts it on its own clock, from the SEND of this request. */
            valid_ms: number;
            /** @description Send it with the next renewal. */
            version: string;
        };
        /** @description A request for a lock, or the renewal of a grant. */
        LockIn: {
            /** @description Names the caller for people, such as its host and process id. */
            holder: string;
            /** @description Names this attempt to hold the lock; choose a random one for each. A repeated request of the same holder and nonce gets the same grant, and one that arrives after the release gets nothing. */
            nonce: string;
            /**
             * @description Validity that a new grant gets. A renewal does not change it. Default: `PT30S`.
             * @example PT30S
             */
            ttl?: string;
            /**
             * @description Wait in the lock's queue. The caller leaves it unless it asks again within this time. Missing: do not wait.
             * @example PT30S
             */
            wait?: string;
            /** @description Token of the grant to renew. Missing: any grant of this holder and nonce, or a new one. */
            token?: number;
            /** @description `version` of the latest answer about this grant. With it a renewal costs one request to storage, not two. */
            version?: string;
        };
        /** @description A page of locks. */
        LockList: {
            items: components["schemas"]["LockOut"][];
            next: string | null;
        };
        /** @description A lock as stored. After its last grant has run out or was released, it is free. */
        LockOut: {
            name: string;
            /**
             * @description `revoked`: the grant cannot be renewed, and runs out.
             * @enum {string}
             */
            state: "held" | "free" | "revoked";
            /** @description Token of the last grant. */
            token: number;
            /** @description Missing while the lock is free. */
            holder?: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            granted?: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            renewed?: string;
            /**
             * Format: date-time
             * @description Time at which others can get the lock, unless the grant is renewed or released before.
             * @example 2026-11-21T10:21:55.250Z
             */
            free_at?: string;
            waiters: components["schemas"]["LockWaiterOut"][];
            /** @description Reason of the revocation. */
            note?: string;
            /** @description Prefix of the key that revoked the grant. */
            author?: string;
        };
        /** @description The reason for a revocation. */
        LockRevokeIn: {
            note: string;
        };
        /** @description The outcome of a revocation. */
        LockRevokedOut: {
            /** @description Milliseconds until the lock can be granted again; 0 if nobody holds it. */
            free_after_ms: number;
        };
        /** @description A waiter of a lock. */
        LockWaiterOut: {
            holder: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            since: string;
        };
        /** @description The caller waits for the lock. */
        LockWaitingOut: {
            /**
             * @description Default: `waiting`.
             * @constant
             */
            state?: "waiting";
            /** @description Waiters before the caller. */
            ahead: number;
            /** @description Milliseconds after which the caller should ask again. */
            retry_ms: number;
        };
        /** @description Lets a receiver answer 202 with `Tocsin-Complete: later`, and complete or fail the event later. */
        LongWork: {
            /**
             * @description Silence for this long after the answer, or after the last heartbeat, is a failed attempt. Default: `PT15M`.
             * @example PT30S
             */
            within?: string;
            /**
             * @description Heartbeats extend the time to this long after the answer, and no further. Default: `PT12H`.
             * @example PT30S
             */
            at_most?: string;
        };
        /** @description The action for matching events. A field that is left out matches any event. */
        MaintenanceRule: {
            /** @enum {string} */
            type?: "Freeze" | "Reboot" | "Redeploy" | "Preempt" | "Terminate";
            /** @enum {string} */
            source?: "Platform" | "User";
            /** @description Matches only impacts of at most this length, in seconds. */
            max_seconds?: number;
            /** @enum {string} */
            action: "approve" | "prepare" | "hold" | "ignore";
            /** @description Only with the action prepare: matching events are prepared for and approved as soon as the domain guard agrees. Default: `false`. */
            early?: boolean;
        };
        /** @description One reason why a fleet needs a person. */
        NeedOut: {
            source: components["schemas"]["Source"];
            /** @description An alarm of leases or of maintenance; `silent` for agents, `waiting` for approvals. */
            what: string;
            /** @description Partitions, servers, events, agents: the subjects of the reason. */
            count: number;
            /**
             * @description The reason for people, with its count.
             * @example 2 partitions without an owner
             */
            text: string;
            /** @description The first subjects, where they are known. */
            subjects: string[];
            /** @description The time at which an alarm of leases was found first; otherwise null. */
            since: string | null;
        };
        /** @description A page of nodes. */
        NodeList: {
            items: components["schemas"]["NodeOut"][];
            next: string | null;
        };
        /** @description The last report of a node's agent. */
        NodeMaintenance: {
            vm: string;
            scope: string;
            location: string;
            fault_domain: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            reported: string;
            disabled: boolean;
            /** @description true: leases must leave this node for now. */
            leaving: boolean;
            monitor: ("primary" | "secondary") | null;
            /** @description ready, or the reason why the agent cannot run the fleet's caller probe. */
            probe?: string;
            events: {
                [key: string]: components["schemas"]["NodePhase"];
            };
        };
        /** @description A node. `turn` and `maintenance` are null if there is none. */
        NodeOut: {
            node: string;
            beat: components["schemas"]["BeatOut"] | null;
            /** @description Partitions of the node with their epochs. */
            partitions: {
                [key: string]: number;
            };
            /** @description Partitions that the node must claim. */
            assign: number[];
            /** @description Partitions that the node must release. */
            release: number[];
            /** @description Smoothed loads of the node's partitions, as far as it publishes them. */
            loads?: {
                [key: string]: number;
            };
            /** @description Manual controls on the node. */
            intents: components["schemas"]["IntentOut"][];
            /** @description The node as a replica. */
            turn?: components["schemas"]["ReplicaOut"] | null;
            /** @description The last report of the node's agent. */
            maintenance?: components["schemas"]["NodeMaintenance"] | null;
        };
        /** @description A node's phase for an event. UNREPORTED: the event names the node, and its agent has not reported it. */
        NodePhase: {
            phase: components["schemas"]["NodePhaseName"] | "UNREPORTED";
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            reported: string;
            reason?: string;
            /** @description With the guard `prepare`, while the node waits to prepare. */
            permission?: components["schemas"]["PermissionOut"];
        };
        /** @enum {string} */
        NodePhaseName: "FOREIGN" | "WAITING" | "PREPARING" | "PREPARED" | "PREPARE_FAILED" | "APPROVED" | "STARTED" | "RESTORING" | "RESTORE_FAILED" | "DONE";
        /** @enum {string} */
        NoticeKind: "event.dead" | "breaker.opened" | "breaker.closed" | "channel.paused" | "schedule.missed" | "schedule.ended" | "limit.reached" | "key.expired";
        /** @description The kinds of which a tenant is told, and the channel that gets its notices. */
        NoticeSettings: {
            /** @description It must exist, unless the call creates the tenant. Of itself it gets no notices about its breaker or its pause. */
            channel: string;
            kinds: components["schemas"]["NoticeKind"][];
        };
        /** @description The channel for alarms. */
        Notify: {
            channel: string;
            kinds?: ("stale" | "dead" | "maintenance")[];
        };
        /** @description One future occurrence. */
        OccurrenceOut: {
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            at: string;
            /**
             * @description With `cron`: the same instant in the schedule's zone.
             * @example 2027-03-28T03:00:00.000+02:00
             */
            local?: string;
            /** @description gap: its local time does not exist, this is the first instant after. fold: it exists twice; this is the first. */
            reason?: components["schemas"]["ClockChange"];
        };
        /** @enum {string} */
        OnConflict: "keep" | "error" | "redrive";
        /** @enum {string} */
        OverlapPolicy: "allow" | "skip" | "queue";
        /** @description The key of a call. */
        OwnKeyOut: {
            /** @description `bootstrap` for the admin key of the settings. */
            prefix: string;
            /** @description Missing for the bootstrap admin key, which has no tenant. */
            tenant?: string;
            scopes: ("events" | "fleets" | "agent" | "read" | "metrics" | "admin")[];
        };
        /** @enum {string} */
        PartitionVerb: "offline" | "online" | "bump" | "prohibit" | "permit" | "pin" | "unpin";
        /** @description The reason of a pause. */
        PauseIn: {
            reason?: string;
        };
        /** @enum {string} */
        Period: "hour" | "day" | "week" | "month";
        /** @description Permission to prepare for an event, or its refusal. */
        PermissionOut: {
            /** @enum {string} */
            state: "granted" | "refused";
            /** @description Reason of the refusal. */
            reason?: string;
            /**
             * Format: date-time
             * @description Time since which the event has its reservation.
             * @example 2026-11-21T10:21:55.250Z
             */
            reserved?: string;
        };
        /** @enum {string} */
        Policy: "none" | "last" | "all";
        /** @description Future occurrences, the earliest first. */
        PreviewOut: {
            items: components["schemas"]["OccurrenceOut"][];
            /**
             * @description With `cron`: the expression in words, as it was read.
             * @example at 02:30 every day, in Europe/Berlin
             */
            reads_as?: string;
        };
        /** @description The limits of what callers may notice of maintenance. A bound that is left out is not checked. */
        ProbeBound: {
            /** @description Largest p99 of the answers' latency, in milliseconds. */
            p99_ms?: number;
            /** @description Largest share of probes that may fail. */
            failures?: number;
        };
        /** @description A problem inside a batch's results. */
        ProblemLine: {
            type: string;
            title: string;
            status: number;
            detail: string;
            errors?: {
                [key: string]: string;
            }[];
            /**
             * @description With storage-unavailable: `unchanged` if nothing was stored, `unknown` if the event may have been stored.
             * @enum {string}
             */
            outcome?: "unknown" | "unchanged";
        };
        /** @description An RFC 9457 problem document. `type` ends in the problem's code. */
        ProblemOut: {
            /** @example https://tocsin.dev/problems/not-found */
            type: string;
            title: string;
            status: number;
            detail: string;
            /** @description The path of the call. */
            instance?: string;
            errors?: components["schemas"]["FieldError"][];
            /**
             * @description With 503: `unknown` if the call may have been applied or may still be, else `unchanged`.
             * @enum {string}
             */
            outcome?: "unknown" | "unchanged";
        };
        /** @description The heartbeat interval (H), the validity of a heartbeat for its sender (V), and the silence after which others take over (T). */
        ProfileIn: {
            /** @example PT30S */
            beat: string;
            /** @example PT30S */
            validity: string;
            /** @example PT30S */
            takeover: string;
        };
        /** @description A channel that sends CloudEvents as JSON messages to an Azure Storage queue, in the app's account or in `account`. */
        QueueChannel: {
            limits?: components["schemas"]["ChannelLimits"];
            /** @description Limits of the events with the same `ordering_key`. */
            per_key?: components["schemas"]["KeyLimits"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "queue";
            queue: string;
            account?: string;
        };
        /** @description A queue channel as stored. */
        QueueChannelOut: {
            name: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            created: string;
            paused: boolean;
            reason?: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            paused_at?: string;
            flow: components["schemas"]["FlowOut"];
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            rotated_at?: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            previous_until?: string;
            /** @description The webhook secret; only the answer that creates the channel shows it. */
            secret?: string;
            limits?: components["schemas"]["ChannelLimits"];
            /** @description Limits of the events with the same `ordering_key`. */
            per_key?: components["schemas"]["KeyLimits"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "queue";
            queue: string;
            account?: string | null;
        };
        /** @description The limit of fault domains that may be down at once. */
        Quorum: {
            /**
             * @description Unit within which fault domains are counted. Default: `location`.
             * @enum {string}
             */
            per?: "location" | "scope" | "fleet";
            /** @description Fault domains that may be down at once. Default: `1`. */
            domains_down?: number;
        };
        /** @description The dead letters to redrive: all that match. */
        RedriveIn: {
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            from?: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            to?: string;
            channel?: string;
        };
        /** @description The number of redriven events. */
        RedriveOut: {
            redriven: number;
        };
        /** @description A node as a replica, from its last report. */
        ReplicaOut: {
            /** @enum {string} */
            role: "primary" | "secondary";
            term: number;
            applied: number;
            lag: number;
            load: number;
            failures: number;
            ready: boolean;
            /** @description Age of the last report, by the storage service's time. */
            report_age_ms: number;
            down: ("silent" | "clock") | null;
            /** @description Reason for which it would get no turn now. */
            skipped: ("primary" | "down" | "not ready" | "taking" | "lag" | "maintenance") | null;
            /** @description Epoch of the turn for which it reports to be taking a checkpoint. */
            taking: number | null;
            /** @description Epoch of the turn that it holds now. */
            holds: number | null;
            last_checkpoint: number;
        };
        /** @description The progress of a resize. It is complete when `opened` is the fleet's partition count. */
        ResizingOut: {
            /** @description Partitions of the generation before. */
            from: number;
            /** @description Partitions of the generation before that no server owns any more. */
            closed: number;
            /** @description Partitions of the new generation that can be claimed. */
            opened: number;
        };
        /** @description The retries of failed deliveries: a list of pauses, or exponential pauses with full jitter; the default is a list of pauses. */
        Retry: {
            /** @description Attempts in all, the first included. */
            attempts?: number;
            /**
             * @description Longest pause before attempt 2; it doubles with each attempt.
             * @example PT30S
             */
            first?: string;
            /**
             * @description Longest pause between attempts.
             * @example PT30S
             */
            max?: string;
            /**
             * @description Time after the due time in which attempts may start; by default P4D.
             * @example PT30S
             */
            within?: string;
            /** @description The pauses between attempts, each counted from the end of the attempt before: n pauses are n + 1 attempts. Each may last up to 20 % longer, never shorter. Excludes attempts, first and max. */
            schedule?: string[];
        };
        /** @description The parts of its tenant's retry policy that an event changes. Excludes each other: schedule; and attempts, first, max. */
        RetryIn: {
            attempts?: number;
            /** @example PT30S */
            first?: string;
            /** @example PT30S */
            max?: string;
            /** @example PT30S */
            within?: string;
            /** @description The pauses between attempts, each up to 20 % longer and never shorter: n pauses are n + 1 attempts. */
            schedule?: string[];
        };
        /** @description A request for a new secret; repeated with the same id, it makes no second one. */
        RotateIn: {
            /** @description Names this rotation: the same id again, before another rotation, answers with the same secret instead of a newer one. */
            id?: string;
        };
        /** @description The rule of a schedule to preview, with exactly one of `cron` and `every`. */
        RuleIn: {
            /**
             * @description Minute, hour, day of month, month, day of week: a day matches either day field, or both if one starts with `*`. With six fields, the second is first and a day matches both (NCRONTAB). L, LW, 15W, FRI#2 and FRIL (5L) are the last day, the last weekday, the weekday nearest to the 15th, the second and the last Friday. Or @hourly, @daily, @weekly, @monthly, @yearly.
             * @example 30 2 * * MON-FRI
             * @example 0 30 10 LW * *
             */
            cron?: string;
            /**
             * @description Elapsed time from `start`, or from the schedule's creation, in whole seconds.
             * @example PT30S
             */
            every?: string;
            /**
             * @description IANA name, for `cron`; default UTC.
             * @example Europe/Berlin
             */
            timezone?: string;
            /**
             * Format: date-time
             * @description No occurrence before this time. With `every`, the first occurrence.
             * @example 2026-11-21T10:21:55.250Z
             */
            start?: string;
            /**
             * Format: date-time
             * @description No occurrence at this instant or later.
             * @example 2026-11-21T10:21:55.250Z
             */
            end?: string;
            /**
             * @description Each occurrence is delivered later by less than this; the exact delay follows from id and time.
             * @example PT30S
             */
            jitter?: string;
            catch_up?: components["schemas"]["CatchUp"];
            /** @description Default: `default`. */
            channel?: string;
            /** @description Instead of `channel`: each occurrence is a fan-out to these channels. */
            channels?: string[];
            /** @description Days without occurrences. */
            exclude?: components["schemas"]["Exclusions"];
            /** @description Only the first occurrence in each hour, day, week (from Monday) or month of the time zone counts. */
            at_most_once_per?: components["schemas"]["Period"];
            /** @description Retry policy of each occurrence; see events. */
            retry?: components["schemas"]["RetryIn"];
            /**
             * @description Longest time of an attempt of each occurrence; see events.
             * @example PT30S
             */
            timeout?: string;
            /** @description Type of the bytes of which the payload is the base64; see events. */
            content_type?: string;
            /** @description Channel of a callback of each occurrence that was delivered; see events. */
            on_delivered?: string;
            /** @description Channel of a callback of each occurrence that is dead or lapsed; see events. */
            on_dead?: string;
            /** @description The treatment of an occurrence that is due while one before it has not ended. allow (the default): it is delivered nevertheless. queue: it waits. skip: it is not delivered, and lapses with an error that says so. */
            overlap?: components["schemas"]["OverlapPolicy"];
            /** @description Ordering key of each occurrence; see events. Excludes an overlap of skip or queue. */
            ordering_key?: string;
        };
        /** @description One of the events that a job has counted. */
        SampleOut: {
            id: string;
            state: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            due: string;
            channel: string;
        };
        /** @description A recurring schedule, with exactly one of `cron` and `every`. */
        ScheduleIn: {
            /**
             * @description Minute, hour, day of month, month, day of week: a day matches either day field, or both if one starts with `*`. With six fields, the second is first and a day matches both (NCRONTAB). L, LW, 15W, FRI#2 and FRIL (5L) are the last day, the last weekday, the weekday nearest to the 15th, the second and the last Friday. Or @hourly, @daily, @weekly, @monthly, @yearly.
             * @example 30 2 * * MON-FRI
             * @example 0 30 10 LW * *
             */
            cron?: string;
            /**
             * @description Elapsed time from `start`, or from the schedule's creation, in whole seconds.
             * @example PT30S
             */
            every?: string;
            /**
             * @description IANA name, for `cron`; default UTC.
             * @example Europe/Berlin
             */
            timezone?: string;
            /**
             * Format: date-time
             * @description No occurrence before this time. With `every`, the first occurrence.
             * @example 2026-11-21T10:21:55.250Z
             */
            start?: string;
            /**
             * Format: date-time
             * @description No occurrence at this instant or later.
             * @example 2026-11-21T10:21:55.250Z
             */
            end?: string;
            /**
             * @description Each occurrence is delivered later by less than this; the exact delay follows from id and time.
             * @example PT30S
             */
            jitter?: string;
            catch_up?: components["schemas"]["CatchUp"];
            /** @description Default: `default`. */
            channel?: string;
            /** @description Instead of `channel`: each occurrence is a fan-out to these channels. */
            channels?: string[];
            /** @description Days without occurrences. */
            exclude?: components["schemas"]["Exclusions"];
            /** @description Only the first occurrence in each hour, day, week (from Monday) or month of the time zone counts. */
            at_most_once_per?: components["schemas"]["Period"];
            /** @description Retry policy of each occurrence; see events. */
            retry?: components["schemas"]["RetryIn"];
            /**
             * @description Longest time of an attempt of each occurrence; see events.
             * @example PT30S
             */
            timeout?: string;
            /** @description Type of the bytes of which the payload is the base64; see events. */
            content_type?: string;
            /** @description Channel of a callback of each occurrence that was delivered; see events. */
            on_delivered?: string;
            /** @description Channel of a callback of each occurrence that is dead or lapsed; see events. */
            on_dead?: string;
            /** @description The treatment of an occurrence that is due while one before it has not ended. allow (the default): it is delivered nevertheless. queue: it waits. skip: it is not delivered, and lapses with an error that says so. */
            overlap?: components["schemas"]["OverlapPolicy"];
            /** @description Ordering key of each occurrence; see events. Excludes an overlap of skip or queue. */
            ordering_key?: string;
            /** @description Any JSON. It is delivered byte for byte as sent with every occurrence. */
            payload: unknown;
        };
        /** @description A page of schedules. They have no order. */
        ScheduleList: {
            items: components["schemas"]["ScheduleOut"][];
            next: string | null;
        };
        /** @description A recurring schedule with its current state. */
        ScheduleOut: {
            id: string;
            tenant: string;
            cron?: string;
            /**
             * @description With `cron`: the expression in words, as it was read.
             * @example at 02:30 every day, in Europe/Berlin
             */
            reads_as?: string;
            /** @example PT30S */
            every?: string;
            timezone?: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            start?: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            end?: string;
            /** @example PT30S */
            jitter?: string;
            catch_up: components["schemas"]["CatchUp"];
            exclude?: components["schemas"]["Exclusions"];
            at_most_once_per?: components["schemas"]["Period"];
            /** @description Missing with `channels`. */
            channel?: string;
            channels?: string[];
            retry?: components["schemas"]["RetryIn"];
            /** @example PT30S */
            timeout?: string;
            content_type?: string;
            on_delivered?: string;
            on_dead?: string;
            /** @description Missing if it is allow. */
            overlap?: components["schemas"]["OverlapPolicy"];
            ordering_key?: string;
            /** @description In `GET /schedules/{id}` only, if occurrences were skipped (`overlap`). */
            skipped?: components["schemas"]["SkippedOut"];
            payload: unknown;
            paused: boolean;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            created: string;
            /** @description Number of changes to content or pause. It marks the ids of occurrences that were created again. */
            revision: number;
            /** @description The next occurrence, without jitter; null if paused, or if there is none. */
            next: string | null;
            /** @description The latest past occurrence that became an event. */
            last: string | null;
            /**
             * Format: date-time
             * @description The earliest occurrence that is over a minute late, because no sweep has run since; `catch_up` decides about it.
             * @example 2026-11-21T10:21:55.250Z
             */
            missed?: string;
        };
        /**
         * @description A new webhook secret; only this answer shows it, and those to the same `id`.
         *
         *     Until `previous_until`, deliveries are also signed with the previous one.
         */
        SecretOut: {
            secret: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            previous_until?: string;
        };
        /** @enum {string} */
        ServerState: "live" | "draining" | "dead";
        /** @enum {string} */
        ServerVerb: "drain" | "undrain" | "prohibit" | "permit";
        /** @description A channel that sends messages to a queue or topic of Azure Service Bus, with the app's identity or an access key. */
        ServiceBusChannel: {
            limits?: components["schemas"]["ChannelLimits"];
            /** @description Limits of the events with the same `ordering_key`. */
            per_key?: components["schemas"]["KeyLimits"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "servicebus";
            /** @example orders.servicebus.windows.net */
            namespace: string;
            /** @description Name of the queue or topic. */
            entity: string;
            /** @description The messages' subject (label). */
            subject?: string;
            /** @description Set the session id, as queues with sessions require it: the event's `ordering_key`, else its id. Default: `false`. */
            sessions?: boolean;
            /**
             * @description Service Bus removes a message that nobody has received by then. Null: as the queue or topic says.
             * @example PT30S
             */
            time_to_live?: string;
            /** @description `SharedAccessKeyName` of a connection string. Null: the app's identity. */
            key_name?: string;
            /** @description `SharedAccessKey` of a connection string. */
            key?: string;
        };
        /** @description A Service Bus channel as stored. Its key is shown as `***`. */
        ServiceBusChannelOut: {
            name: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            created: string;
            paused: boolean;
            reason?: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            paused_at?: string;
            flow: components["schemas"]["FlowOut"];
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            rotated_at?: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            previous_until?: string;
            /** @description The webhook secret; only the answer that creates the channel shows it. */
            secret?: string;
            limits?: components["schemas"]["ChannelLimits"];
            /** @description Limits of the events with the same `ordering_key`. */
            per_key?: components["schemas"]["KeyLimits"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "servicebus";
            /** @example orders.servicebus.windows.net */
            namespace: string;
            /** @description Name of the queue or topic. */
            entity: string;
            /** @description The messages' subject (label). */
            subject?: string;
            /** @description Set the session id, as queues with sessions require it: the event's `ordering_key`, else its id. Default: `false`. */
            sessions?: boolean;
            /**
             * @description Service Bus removes a message that nobody has received by then. Null: as the queue or topic says.
             * @example PT30S
             */
            time_to_live?: string;
            /** @description `SharedAccessKeyName` of a connection string. Null: the app's identity. */
            key_name?: string;
            /** @description `SharedAccessKey` of a connection string. */
            key?: string;
        };
        /** @description The sizes that the service accepts. They depend on the size of its instances, and on the tenant's settings. */
        SizesOut: {
            /** @description Largest body of a batch. An event for several channels counts once for each of them. */
            batch_bytes: number;
            /** @description Most events in a batch, counted likewise. */
            batch_events: number;
            /** @description Largest event, as JSON. */
            event_bytes: number;
            /** @description Largest payload of an event to an http channel; some kinds of channels take less. */
            payload_bytes: number;
            /**
             * @description `expires` of events that leave it out; missing: they never lapse.
             * @example PT30S
             */
            expires?: string;
        };
        /** @description The occurrences of a schedule that were skipped. */
        SkippedOut: {
            count: number;
            /**
             * Format: date-time
             * @description Due time of the last of them.
             * @example 2026-11-21T10:21:55.250Z
             */
            last: string;
        };
        /** @enum {string} */
        Source: "leases" | "maintenance" | "agents" | "approvals";
        /** @description Counts of the tenant's events: open ones now, finished ones of the last day. */
        StatsOut: {
            open: number;
            overdue: number;
            stuck: number;
            /** @description True if not all shards were counted in time: more events are open. Otherwise left out. Default: `false`. */
            incomplete?: boolean;
            delivered: number;
            dead: number;
            lapsed: number;
            cancelled: number;
            retrying: number;
            /** @description Those of `retrying` that receivers work on. */
            working: number;
            /** @description Due events whose channel is paused or has a circuit breaker that is not closed. */
            held: number;
            /** @description True if more shards hold events than one request reads: others may hold more events. */
            held_partial: boolean;
            /** @description Largest delay of the copies of unfinished mirrored shards. */
            mirror_lag_ms?: number | null;
            late_ms: components["schemas"]["LateOut"];
            channels: {
                [key: string]: components["schemas"]["ChannelStats"];
            };
        };
        /** @enum {string} */
        Strangers: "hold" | "ignore";
        /** @description A tenant's settings, as sent with PUT. */
        Tenant: {
            /**
             * @description Durability of events that name none, and the least durability; null: standard.
             * @enum {string}
             */
            durability?: "fast" | "standard" | "mirrored";
            retry?: components["schemas"]["Retry"];
            /**
             * @description `expires` of new events that leave it out, counted from the end of their flexible window. Not for occurrences of schedules, callbacks, and other events that the service makes.
             * @example PT30S
             */
            expires?: string;
            limits?: components["schemas"]["Limits"];
            /** @description Names of the labels by which events are listed without a look at every event. */
            searchable?: string[];
            /** @description Notices to the tenant about its events, channels, schedules and keys. */
            notices?: components["schemas"]["NoticeSettings"];
            /** @description The audiences of Entra for which its channels may carry tokens, and the hosts that may get them. */
            entra_audiences?: components["schemas"]["EntraAudience"][];
        };
        /** @description A page of tenants. */
        TenantList: {
            items: components["schemas"]["TenantOut"][];
            next: string | null;
        };
        /** @description A tenant as stored. */
        TenantOut: {
            /** @description Durability of events that name none, and the least durability; null: standard. */
            durability?: ("fast" | "standard" | "mirrored") | null;
            retry?: components["schemas"]["Retry"];
            /**
             * @description `expires` of new events that leave it out, counted from the end of their flexible window. Not for occurrences of schedules, callbacks, and other events that the service makes.
             * @example PT30S
             */
            expires?: string;
            limits?: components["schemas"]["Limits"];
            /** @description Names of the labels by which events are listed without a look at every event. */
            searchable?: string[];
            /** @description Notices to the tenant about its events, channels, schedules and keys. */
            notices?: components["schemas"]["NoticeSettings"];
            /** @description The audiences of Entra for which its channels may carry tokens, and the hosts that may get them. */
            entra_audiences?: components["schemas"]["EntraAudience"][];
            name: string;
            /** @description Differs from the uid of every other tenant, also of a deleted one with this name: `TOCSIN_CLIENT_CERTIFICATES` and `TOCSIN_SERVICE_BUS` name a tenant as `name@uid`. Empty in a dry run that would create the tenant. */
            uid: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            created: string;
        };
        /** @description All tenants, those that need a person first, the worst of them first. Only `items` is paged. */
        TenantOverviewOut: {
            items: components["schemas"]["TenantSummary"][];
            next: string | null;
            tenants: number;
            /** @description Tenants that need nobody. */
            quiet: number;
            /**
             * Format: date-time
             * @description The time at which the figures were read.
             * @example 2026-11-21T10:21:55.250Z
             */
            read_at: string;
            /** @description True if not everything was counted: some figures are not exact. Otherwise left out. */
            incomplete?: boolean;
        };
        /** @description The summary of a tenant. */
        TenantSummary: {
            tenant: string;
            /** @description `urgent`: events are overdue or a fleet is in trouble; `soon`: dead events or a blocked channel; `later`: a fleet whose needs can wait. */
            urgency: components["schemas"]["Urgency"];
            /** @description Overdue events whose shard was requested several times without success. */
            stuck: number;
            /** @description Open events past their due time whose shard has no owner. */
            overdue: number;
            /** @description Dead events of the last day that were not redriven. */
            dead: number;
            /** @description Channels that are paused or whose circuit breaker is not closed. */
            blocked_channels: number;
            /** @description The first 5 of them. */
            blocked: components["schemas"]["BlockedOut"][];
            /** @description Fleets that need a person. */
            fleets: number;
            /** @description Those of them that need one at once. */
            urgent_fleets: number;
            retrying: number;
            open: number;
        };
        /** @description A request for one event of a schedule at once. */
        TriggerIn: {
            /** @description The end of the event's id: the same id again makes no second event. Null: a new one. */
            id?: string;
        };
        /** @description Timeout of a turn: of the first one, and the bounds within which the service adapts it. */
        TurnTimeout: {
            /**
             * @description Default: `PT10M`.
             * @example PT30S
             */
            initial?: string;
            /**
             * @description Default: `PT1M`.
             * @example PT30S
             */
            min?: string;
            /**
             * @description Default: `PT1H`.
             * @example PT30S
             */
            max?: string;
        };
        /** @enum {string} */
        Urgency: "urgent" | "soon" | "later" | "none";
        /** @description The work of a receiver that has accepted the event, to complete it later. */
        WorkOut: {
            attempt: number;
            /**
             * Format: date-time
             * @description Start of the attempt.
             * @example 2026-11-21T10:21:55.250Z
             */
            since: string;
            /**
             * Format: date-time
             * @description Silence until then is a failed attempt.
             * @example 2026-11-21T10:21:55.250Z
             */
            deadline: string;
            /**
             * Format: date-time
             * @description Heartbeats extend the deadline up to this time.
             * @example 2026-11-21T10:21:55.250Z
             */
            latest: string;
            /**
             * @description Time from a heartbeat to the new deadline.
             * @example PT30S
             */
            within: string;
            heartbeats: number;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            last_heartbeat?: string;
        };
        /** @description The state of an attempt's work after the call. */
        WorkStateOut: {
            /** @enum {string} */
            state: "working" | "completed" | "failed";
            /**
             * @description State of the event; `ended` if the event went on since a former call ended the work.
             * @enum {string}
             */
            event: "working" | "delivered" | "retrying" | "dead" | "lapsed" | "ended";
            /**
             * Format: date-time
             * @description While working: silence until then is a failed attempt.
             * @example 2026-11-21T10:21:55.250Z
             */
            deadline?: string;
            /**
             * Format: date-time
             * @description While working: heartbeats extend the deadline up to this time.
             * @example 2026-11-21T10:21:55.250Z
             */
            latest?: string;
            /**
             * Format: date-time
             * @example 2026-11-21T10:21:55.250Z
             */
            next_attempt?: string;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: {
        /** @description Entity tag of the representation. */
        ETag: string;
        /** @description Path of the created resource. */
        Location: string;
        /** @description Seconds to wait. */
        "Retry-After": number;
        "WWW-Authenticate": string;
    };
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    calendars_list: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
                /** @description Most items in the answer. */
                limit?: number;
                /** @description `next` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CalendarList"];
                };
            };
        };
    };
    calendars_get: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CalendarOut"];
                };
            };
        };
    };
    calendars_put: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
                /** @description Check everything and answer what would be stored, but store nothing. The answer has an `ETag` only if nothing would change. */
                dry_run?: boolean;
            };
            header?: {
                /** @description The call succeeds only if the representation still has this entity tag. */
                "If-Match"?: string;
            };
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CalendarIn"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CalendarOut"];
                };
            };
            /** @description Created */
            201: {
                headers: {
                    Location: components["headers"]["Location"];
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CalendarOut"];
                };
            };
        };
    };
    calendars_delete: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: {
                /** @description The call succeeds only if the representation still has this entity tag. */
                "If-Match"?: string;
            };
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done; no content */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    dead_letters_list: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
                /** @description Most items in the answer. */
                limit?: number;
                /** @description `next` of the previous page. */
                cursor?: string;
                from?: string;
                to?: string;
                channel?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EventList"];
                };
            };
        };
    };
    dead_letters_redrive: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RedriveIn"];
            };
        };
        responses: {
            /** @description Accepted */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RedriveOut"];
                };
            };
        };
    };
    events_list: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
                /** @description Most items in the answer. */
                limit?: number;
                /** @description `next` of the previous page. */
                cursor?: string;
                from?: string;
                to?: string;
                state?: components["schemas"]["EventState"];
                channel?: string;
                /** @description Only events with these labels: 1 to 4 labels as NAME=VALUE with commas between them, such as order=17,team=blue. Costs a look at every event that the other filters leave. */
                label?: string;
                /** @description Only events whose id begins so. Costs as `label` does. */
                id_prefix?: string;
                /** @description Only events whose last error contains this, in any case. Costs as `label` does. */
                error?: string;
                /** @description `true`: only due events that a paused channel or a circuit breaker holds. */
                held?: boolean;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EventList"];
                };
            };
        };
    };
    events_create: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["EventIn"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EventOut"] | components["schemas"]["FanoutOut"];
                };
            };
            /** @description Created */
            201: {
                headers: {
                    Location: components["headers"]["Location"];
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EventOut"] | components["schemas"]["FanoutOut"];
                };
            };
            /** @description Accepted */
            202: {
                headers: {
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EventOut"];
                };
            };
        };
    };
    events_batch: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["EventIn"][];
                "application/x-ndjson": string;
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BatchOut"];
                };
            };
        };
    };
    events_get: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EventOut"] | components["schemas"]["FanoutOut"];
                };
            };
        };
    };
    events_delete: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: {
                /** @description The call succeeds only if the representation still has this entity tag. */
                "If-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FanoutReport"];
                };
            };
            /** @description Done; no content */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    events_patch: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: {
                /** @description The call succeeds only if the representation still has this entity tag. */
                "If-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["EventPatch"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EventOut"] | components["schemas"]["FanoutReport"];
                };
            };
        };
    };
    events_fire: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: {
                /** @description The call succeeds only if the representation still has this entity tag. */
                "If-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Accepted */
            202: {
                headers: {
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EventOut"] | components["schemas"]["FanoutReport"];
                };
            };
        };
    };
    events_redrive: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Accepted */
            202: {
                headers: {
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EventOut"] | components["schemas"]["FanoutReport"];
                };
            };
        };
    };
    fleet_overview: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
                /** @description Most items in the answer. */
                limit?: number;
                /** @description `next` of the previous page. */
                cursor?: string;
                /** @description The answer lists the names of all fleets. */
                names?: boolean;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FleetOverview"];
                };
            };
        };
    };
    fleets_list: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
                /** @description Most items in the answer. */
                limit?: number;
                /** @description `next` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FleetList"];
                };
            };
        };
    };
    fleets_get: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: never;
            path: {
                fleet: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FleetOut"];
                };
            };
        };
    };
    fleets_put: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
                /** @description Check everything and answer what would be stored, but store nothing. The answer has an `ETag` only if nothing would change. */
                dry_run?: boolean;
            };
            header?: {
                /** @description The call succeeds only if the representation still has this entity tag. */
                "If-Match"?: string;
            };
            path: {
                fleet: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["FleetIn"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FleetOut"];
                };
            };
            /** @description Created */
            201: {
                headers: {
                    Location: components["headers"]["Location"];
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FleetOut"];
                };
            };
        };
    };
    fleets_delete: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: {
                /** @description The call succeeds only if the representation still has this entity tag. */
                "If-Match"?: string;
            };
            path: {
                fleet: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done; no content */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    nodes_list: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
                /** @description Most items in the answer. */
                limit?: number;
                /** @description `next` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path: {
                fleet: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NodeList"];
                };
            };
        };
    };
    nodes_get: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: never;
            path: {
                fleet: string;
                node: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NodeOut"];
                };
            };
        };
    };
    heartbeats_get: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HeartbeatOut"];
                };
            };
        };
    };
    heartbeats_call: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["HeartbeatIn"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HeartbeatOut"];
                };
            };
            /** @description Created */
            201: {
                headers: {
                    Location: components["headers"]["Location"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HeartbeatOut"];
                };
            };
        };
    };
    heartbeats_delete: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: {
                /** @description The call succeeds only if the representation still has this entity tag. */
                "If-Match"?: string;
            };
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done; no content */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    history: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
                from?: string;
                to?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HistoryOut"];
                };
            };
        };
    };
    jobs_list: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
                /** @description Most items in the answer. */
                limit?: number;
                /** @description `next` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BulkList"];
                };
            };
        };
    };
    jobs_create: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["BulkIn"];
            };
        };
        responses: {
            /** @description Created */
            201: {
                headers: {
                    Location: components["headers"]["Location"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BulkOut"];
                };
            };
        };
    };
    jobs_get: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BulkOut"];
                };
            };
        };
    };
    jobs_cancel: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BulkOut"];
                };
            };
        };
    };
    jobs_confirm: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["BulkConfirmIn"];
            };
        };
        responses: {
            /** @description Accepted */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BulkOut"];
                };
            };
        };
    };
    key_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OwnKeyOut"];
                };
            };
        };
    };
    limits: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SizesOut"];
                };
            };
        };
    };
    load: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
                from?: string;
                to?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LoadOut"];
                };
            };
        };
    };
    locks_list: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
                /** @description Most items in the answer. */
                limit?: number;
                /** @description `next` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LockList"];
                };
            };
        };
    };
    locks_get: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: never;
            path: {
                lock: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LockOut"];
                };
            };
        };
    };
    locks_put: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: never;
            path: {
                lock: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["LockIn"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LockHeldOut"];
                };
            };
            /** @description Accepted */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LockWaitingOut"];
                };
            };
        };
    };
    locks_delete: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
                /** @description As in the request for the lock. */
                holder?: string;
                /** @description As in the request for the lock. */
                nonce?: string;
                /** @description Release this grant only. Without holder: its holder is known to have stopped. */
                token?: number;
            };
            header?: {
                /** @description The call succeeds only if the representation still has this entity tag. */
                "If-Match"?: string;
            };
            path: {
                lock: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done; no content */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    locks_revoke: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: never;
            path: {
                lock: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["LockRevokeIn"];
            };
        };
        responses: {
            /** @description Accepted */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LockRevokedOut"];
                };
            };
        };
    };
    schedules_list: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
                /** @description Most items in the answer. */
                limit?: number;
                /** @description `next` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ScheduleList"];
                };
            };
        };
    };
    schedules_preview_rule: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
                n?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RuleIn"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PreviewOut"];
                };
            };
        };
    };
    schedules_get: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ScheduleOut"];
                };
            };
        };
    };
    schedules_put: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
                /** @description Check everything and answer what would be stored, but store nothing. The answer has an `ETag` only if nothing would change. */
                dry_run?: boolean;
            };
            header?: {
                /** @description The call succeeds only if the representation still has this entity tag. */
                "If-Match"?: string;
                /** @description With *, the call creates and never replaces: it is 412 if something exists at this path. */
                "If-None-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ScheduleIn"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ScheduleOut"];
                };
            };
            /** @description Created */
            201: {
                headers: {
                    Location: components["headers"]["Location"];
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ScheduleOut"];
                };
            };
        };
    };
    schedules_delete: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
                /** @description For due occurrences that a late sweep is just storing. cancel: they are cancelled. keep: those that are stored stay, as all others that are due do. */
                overdue?: "cancel" | "keep";
            };
            header?: {
                /** @description The call succeeds only if the representation still has this entity tag. */
                "If-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done; no content */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    schedules_backfill: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["BackfillIn"];
            };
        };
        responses: {
            /** @description Accepted */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BackfillOut"];
                };
            };
        };
    };
    schedules_pause: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: {
                /** @description The call succeeds only if the representation still has this entity tag. */
                "If-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ScheduleOut"];
                };
            };
        };
    };
    schedules_preview: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
                n?: number;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PreviewOut"];
                };
            };
        };
    };
    schedules_resume: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: {
                /** @description The call succeeds only if the representation still has this entity tag. */
                "If-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ScheduleOut"];
                };
            };
        };
    };
    schedules_trigger: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["TriggerIn"];
            };
        };
        responses: {
            /** @description Accepted */
            202: {
                headers: {
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EventOut"] | components["schemas"]["FanoutOut"];
                };
            };
        };
    };
    stats: {
        parameters: {
            query?: {
                /** @description The tenant that an admin key acts for. Other keys must leave it out. */
                tenant?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StatsOut"];
                };
            };
        };
    };
    tenants_overview: {
        parameters: {
            query?: {
                /** @description Most items in the answer. */
                limit?: number;
                /** @description `next` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TenantOverviewOut"];
                };
            };
        };
    };
    tenants_list: {
        parameters: {
            query?: {
                /** @description Most items in the answer. */
                limit?: number;
                /** @description `next` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TenantList"];
                };
            };
        };
    };
    tenants_get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TenantOut"];
                };
            };
        };
    };
    tenants_put: {
        parameters: {
            query?: {
                /** @description Check everything and answer what would be stored, but store nothing. The answer has an `ETag` only if nothing would change. */
                dry_run?: boolean;
                /** @description The new tenant takes over the events that a deleted tenant of this name left. */
                inherit?: boolean;
            };
            header?: {
                /** @description The call succeeds only if the representation still has this entity tag. */
                "If-Match"?: string;
            };
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Tenant"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TenantOut"];
                };
            };
            /** @description Created */
            201: {
                headers: {
                    Location: components["headers"]["Location"];
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TenantOut"];
                };
            };
        };
    };
    tenants_delete: {
        parameters: {
            query?: never;
            header?: {
                /** @description The call succeeds only if the representation still has this entity tag. */
                "If-Match"?: string;
            };
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done; no content */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    channels_list: {
        parameters: {
            query?: {
                /** @description Most items in the answer. */
                limit?: number;
                /** @description `next` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ChannelList"];
                };
            };
        };
    };
    channels_get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HttpChannelOut"] | components["schemas"]["FleetChannelOut"] | components["schemas"]["QueueChannelOut"] | components["schemas"]["EventGridChannelOut"] | components["schemas"]["KafkaChannelOut"] | components["schemas"]["ServiceBusChannelOut"];
                };
            };
        };
    };
    channels_put: {
        parameters: {
            query?: {
                /** @description Check everything and answer what would be stored, but store nothing. The answer has an `ETag` only if nothing would change. */
                dry_run?: boolean;
            };
            header?: {
                /** @description The call succeeds only if the representation still has this entity tag. */
                "If-Match"?: string;
            };
            path: {
                tenant: string;
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["HttpChannel"] | components["schemas"]["FleetChannel"] | components["schemas"]["QueueChannel"] | components["schemas"]["EventGridChannel"] | components["schemas"]["KafkaChannel"] | components["schemas"]["ServiceBusChannel"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HttpChannelOut"] | components["schemas"]["FleetChannelOut"] | components["schemas"]["QueueChannelOut"] | components["schemas"]["EventGridChannelOut"] | components["schemas"]["KafkaChannelOut"] | components["schemas"]["ServiceBusChannelOut"];
                };
            };
            /** @description Created */
            201: {
                headers: {
                    Location: components["headers"]["Location"];
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HttpChannelOut"] | components["schemas"]["FleetChannelOut"] | components["schemas"]["QueueChannelOut"] | components["schemas"]["EventGridChannelOut"] | components["schemas"]["KafkaChannelOut"] | components["schemas"]["ServiceBusChannelOut"];
                };
            };
        };
    };
    channels_delete: {
        parameters: {
            query?: never;
            header?: {
                /** @description The call succeeds only if the representation still has this entity tag. */
                "If-Match"?: string;
            };
            path: {
                tenant: string;
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done; no content */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    channels_pause: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
                name: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["PauseIn"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HttpChannelOut"] | components["schemas"]["FleetChannelOut"] | components["schemas"]["QueueChannelOut"] | components["schemas"]["EventGridChannelOut"] | components["schemas"]["KafkaChannelOut"] | components["schemas"]["ServiceBusChannelOut"];
                };
            };
        };
    };
    channels_resume: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HttpChannelOut"] | components["schemas"]["FleetChannelOut"] | components["schemas"]["QueueChannelOut"] | components["schemas"]["EventGridChannelOut"] | components["schemas"]["KafkaChannelOut"] | components["schemas"]["ServiceBusChannelOut"];
                };
            };
        };
    };
    channels_rotate: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
                name: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["RotateIn"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SecretOut"];
                };
            };
        };
    };
    keys_list: {
        parameters: {
            query?: {
                /** @description Most items in the answer. */
                limit?: number;
                /** @description `next` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeyList"];
                };
            };
        };
    };
    keys_create: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["KeyIn"];
            };
        };
        responses: {
            /** @description Created */
            201: {
                headers: {
                    Location: components["headers"]["Location"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeyMade"];
                };
            };
        };
    };
    keys_delete: {
        parameters: {
            query?: never;
            header?: {
                /** @description The call succeeds only if the representation still has this entity tag. */
                "If-Match"?: string;
            };
            path: {
                tenant: string;
                prefix: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done; no content */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    work_complete: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
                place: string;
                attempt: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WorkStateOut"];
                };
            };
        };
    };
    work_fail: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
                place: string;
                attempt: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["FailIn"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WorkStateOut"];
                };
            };
        };
    };
    work_heartbeat: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                tenant: string;
                place: string;
                attempt: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WorkStateOut"];
                };
            };
        };
    };
}
