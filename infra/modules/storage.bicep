metadata description = 'One storage account of events: tables, queues, and what the app may do with them. No key opens it.'

@minLength(3)
@maxLength(24)
param name string
param location string
param redundancy string

@description('Whether Azure refuses to delete it.')
param deleteLock bool
param tables array
param queues array

@description('Principal of the app.')
param principalId string

@description('Whether only private endpoints lead to it.')
param privateOnly bool
param workspaceId string

@description('Whether Azure\'s own metrics go to the workspace too.')
param platformMetrics bool

@description('Categories of requests that are logged one by one.')
param auditLogs array
param tags object

var tableContributor = '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3'
var queueContributor = '974c5e8b-45b9-4653-ba55-5f855dd0fb88'

resource account 'Microsoft.Storage/storageAccounts@2023-05-01' = {
  name: name
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: { name: redundancy }
  properties: {
    allowBlobPublicAccess: false
    allowCrossTenantReplication: false
    allowSharedKeyAccess: false
    defaultToOAuthAuthentication: true
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    publicNetworkAccess: privateOnly ? 'Disabled' : 'Enabled'
    networkAcls: {
      bypass: 'None'
      defaultAction: privateOnly ? 'Deny' : 'Allow'
    }
  }
}

resource tableService 'Microsoft.Storage/storageAccounts/tableServices@2023-05-01' = {
  parent: account
  name: 'default'
}

resource keptTables 'Microsoft.Storage/storageAccounts/tableServices/tables@2023-05-01' = [
  for table in tables: {
    parent: tableService
    name: table
  }
]

resource queueService 'Microsoft.Storage/storageAccounts/queueServices@2023-05-01' = {
  parent: account
  name: 'default'
}

resource keptQueues 'Microsoft.Storage/storageAccounts/queueServices/queues@2023-05-01' = [
  for queue in queues: {
    parent: queueService
    name: queue
  }
]

resource tableRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(account.id, principalId, tableContributor)
  scope: account
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', tableContributor)
  }
}

resource queueRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(queues)) {
  name: guid(account.id, principalId, queueContributor)
  scope: account
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', queueContributor)
  }
}

resource tableDiagnostics 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = if (platformMetrics || !empty(auditLogs)) {
  name: 'tocsin'
  scope: tableService
  properties: {
    workspaceId: workspaceId
    logs: [for category in auditLogs: { category: category, enabled: true }]
    metrics: [
      { category: 'Transaction', enabled: platformMetrics }
    ]
  }
}

resource queueDiagnostics 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = if (platformMetrics || !empty(auditLogs)) {
  name: 'tocsin'
  scope: queueService
  properties: {
    workspaceId: workspaceId
    logs: [for category in auditLogs: { category: category, enabled: true }]
    metrics: [
      { category: 'Transaction', enabled: platformMetrics }
    ]
  }
}

// Tables have no soft delete: with an account all its events are gone.
resource lock 'Microsoft.Authorization/locks@2020-05-01' = if (deleteLock) {
  name: 'tocsin'
  scope: account
  properties: {
    level: 'CanNotDelete'
    notes: 'Events, leases and tenants are in this account, and a deleted account cannot be recovered.'
  }
}

output id string = account.id
output name string = account.name
output tableUri string = account.properties.primaryEndpoints.table
output queueUri string = account.properties.primaryEndpoints.queue
