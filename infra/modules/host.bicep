metadata description = 'The account of the Functions host: the deployed package, and the locks of timers. No event is ever in it.'

@minLength(3)
@maxLength(24)
param name string
param location string
param redundancy string

@description('Principal of the app.')
param principalId string

@description('Whether only private endpoints lead to it.')
param privateOnly bool
param workspaceId string

@description('Whether Azure\'s own metrics go to the workspace too.')
param platformMetrics bool
param tags object

var blobOwner = 'b7e6dc6d-f1e8-4753-8033-0f276bb0955b'

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

resource blobService 'Microsoft.Storage/storageAccounts/blobServices@2023-05-01' = {
  parent: account
  name: 'default'
}

resource packages 'Microsoft.Storage/storageAccounts/blobServices/containers@2023-05-01' = {
  parent: blobService
  name: 'packages'
  properties: {
    publicAccess: 'None'
  }
}

// The role that the host itself asks for; the account holds nothing else.
resource owning 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(account.id, principalId, blobOwner)
  scope: account
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', blobOwner)
  }
}

resource diagnostics 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = if (platformMetrics) {
  name: 'tocsin'
  scope: blobService
  properties: {
    workspaceId: workspaceId
    metrics: [
      { category: 'Transaction', enabled: true }
    ]
  }
}

output id string = account.id
output blobUri string = account.properties.primaryEndpoints.blob
output deploymentContainer string = packages.name
