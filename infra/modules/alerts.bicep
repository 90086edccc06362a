metadata description = 'Alarms that need a person: one rule over all of them, which sends one alert for each alarm. A test runs its query.'

param token string
param location string
param workspaceId string

@description('Where alerts go; nowhere when empty.')
param email string

@description('Minutes between two runs of the rule. Azure has prices for 5, 10 and 15.')
param minutes int

@description('A 99th percentile of lateness above this, in milliseconds, is an alarm.')
param lateMs int = 1000
param tags object

// Each query answers with rows when something is wrong. Metrics come every few minutes, one value a record, counters as their total so far;
// all of one export have the same TimeGenerated, and sampling does not touch them. Each query covers more than the time between two runs, so
// that an alarm that needs two values, or has late data, is not missed between two runs; `ago` takes literals only.
// docs/reference/observability.md has the same table for Prometheus.
var alarms = [
  {
    name: 'ledger-gap'
    about: 'Finished shards accepted events that have no final state. This is a bug of Tocsin: keep the tables as they are and report it.'
    query: 'AppMetrics | where TimeGenerated > ago(30m) | where Name == "tocsin_ledger_gap" | where Sum != 0'
  }
  {
    name: 'dead-letters'
    about: 'Events have died: GET /api/v1/dead-letters shows why, and they can be redriven.'
    query: 'AppMetrics | where TimeGenerated > ago(30m) | where Name in ("tocsin_events", "tocsin_events_finished") and tostring(Properties.state) == "dead" | summarize dead = sum(Sum) by TimeGenerated, tenant = tostring(Properties.tenant) | summarize (T0, First) = arg_min(TimeGenerated, dead), (T1, Last) = arg_max(TimeGenerated, dead) by tenant | where Last > First'
  }
  {
    name: 'shard-stuck'
    about: 'No process has managed to serve a shard whose message was sent eight times or more.'
    query: 'AppMetrics | where TimeGenerated > ago(30m) | where Name == "tocsin_events_stuck" | where Sum > 0'
  }
  {
    name: 'late-p99'
    about: 'First attempts of deliveries are late: too few instances, storage that throttles, or a paused channel that was resumed.'
    query: 'AppDependencies | where TimeGenerated > ago(30m) | where Name startswith "deliver " and toint(Properties["tocsin.attempt"]) == 1 | summarize seen = count(), late = percentile(todouble(Properties["tocsin.late_ms"]), 99) | where seen >= 20 and late > ${lateMs}'
  }
  {
    name: 'timer-silent'
    about: 'A job of the sweep has not run for ten minutes, or no data about jobs arrives. Timers can fail to return after a deployment: restart the app.'
    query: 'AppMetrics | where TimeGenerated > ago(15m) | where Name == "tocsin_timer_age_seconds" and tostring(Properties.timer) != "retention_scan" | summarize (T, Age) = arg_max(TimeGenerated, Sum) by timer = tostring(Properties.timer) | summarize ticking = countif(Age < 600 and timer in ("scheduler_scan", "lease_scan", "stale_scan")), silent = countif(Age >= 600) | where ticking < 3 or silent > 0'
  }
  {
    name: 'retention-silent'
    about: 'The hourly job of the sweep has not run for three hours: nothing that has been kept long enough is removed.'
    query: 'AppMetrics | where TimeGenerated > ago(30m) | where Name == "tocsin_timer_age_seconds" and tostring(Properties.timer) == "retention_scan" | summarize (T, Age) = arg_max(TimeGenerated, Sum) by timer = tostring(Properties.timer) | where Age >= 10800'
  }
  {
    name: 'stale-lease'
    about: 'Partitions are without a server for longer than a take-over needs: GET /api/v1/fleets/FLEET/leases/stale.'
    query: 'AppMetrics | where TimeGenerated > ago(30m) | where Name == "tocsin_lease_partitions_stale" | where Sum > 0'
  }
  {
    name: 'unowned-partitions'
    about: 'A fleet leaves partitions unserved, or their rows are missing: docs/how-to/operations.md explains what to do.'
    query: 'AppMetrics | where TimeGenerated > ago(30m) | where Name == "tocsin_lease_alarm" and Sum > 0 | where tostring(Properties.alarm) == "unserved" or tostring(Properties.alarm) == "missing"'
  }
  {
    name: 'turn-stuck'
    about: 'The checkpoint turns of a fleet time out repeatedly, or no replica is fit to take one.'
    query: 'AppMetrics | where TimeGenerated > ago(30m) | where Name == "tocsin_lease_alarm" and Sum > 0 | where tostring(Properties.alarm) == "turns"'
  }
  {
    name: 'restore-failed'
    about: 'A node could not be put back into service after its maintenance.'
    query: 'AppMetrics | where TimeGenerated > ago(30m) | where Name == "tocsin_maintenance_alarm" and Sum > 0 | where tostring(Properties.alarm) == "restore-failed"'
  }
  {
    name: 'single-monitor'
    about: 'Only one node monitors a fleet, or both monitors are in one fault domain.'
    query: 'AppMetrics | where TimeGenerated > ago(30m) | where Name == "tocsin_maintenance_alarm" and Sum > 0 | where tostring(Properties.alarm) == "single-monitor" or tostring(Properties.alarm) == "monitors-together"'
  }
  {
    name: 'clock-unproved'
    about: 'An instance has a clock that storage proves wrong by a second or more, or cannot prove right: GET /api/readyz shows the bounds.'
    query: 'AppTraces | where TimeGenerated > ago(30m) | where tostring(Properties.action) in ("clock_wrong", "clock_unproved")'
  }
  {
    name: 'illegal-step'
    about: 'An instance has made a step that its protocol forbids: verify the logs of all with tocsin verify-trace. Only with TOCSIN_TRACE.'
    query: 'AppTraces | where TimeGenerated > ago(30m) | where tostring(Properties.action) == "protocol_violation"'
  }
]

// Azure has a price for each rule, and a tenth of it for each further alarm while it lasts. Thirteen rules would cost thirteen times as much.
// `isfuzzy` leaves out tables that are not there.
var named = [for alarm in alarms: '${alarm.query} | extend alarm = "${alarm.name}"']
var sentences = [for alarm in alarms: '${alarm.name}: ${alarm.about}']

resource people 'Microsoft.Insights/actionGroups@2023-01-01' = if (!empty(email)) {
  name: 'ag-tocsin-${token}'
  location: 'global'
  tags: tags
  properties: {
    groupShortName: 'tocsin'
    enabled: true
    emailReceivers: [
      {
        name: 'operators'
        emailAddress: email
        useCommonAlertSchema: true
      }
    ]
  }
}

resource rule 'Microsoft.Insights/scheduledQueryRules@2022-06-15' = {
  name: 'tocsin-alarms-${token}'
  location: location
  tags: tags
  properties: {
    displayName: 'Tocsin: the dimension alarm says what is wrong'
    description: join(sentences, ' ')
    severity: 1
    enabled: true
    scopes: [
      workspaceId
    ]
    evaluationFrequency: 'PT${minutes}M'
    windowSize: 'PT30M'
    // A new workspace does not have every table yet.
    skipQueryValidation: true
    autoMitigate: true
    criteria: {
      allOf: [
        {
          query: '${named[0]} | union isfuzzy=true (${join(skip(named, 1), '), (')}) | summarize found = count() by alarm'
          timeAggregation: 'Count'
          operator: 'GreaterThan'
          threshold: 0
          dimensions: [
            {
              name: 'alarm'
              operator: 'Include'
              values: ['*']
            }
          ]
          failingPeriods: {
            numberOfEvaluationPeriods: 1
            minFailingPeriodsToAlert: 1
          }
        }
      ]
    }
    actions: {
      actionGroups: empty(email) ? [] : [people.id]
    }
  }
}
