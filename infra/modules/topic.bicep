metadata description = 'An Event Grid topic that channels may deliver to: CloudEvents, and no keys.'

param name string
param location string

@description('Principal of the app.')
param principalId string
param workspaceId string

@description('Whether Azure\'s own metrics go to the workspace too.')
param platformMetrics bool
param tags object

var dataSender = 'd5a91429-5739-47e2-a06b-3470a27159e7'

resource topic 'Microsoft.EventGrid/topics@2022-06-15' = {
  name: name
  location: location
  tags: tags
  properties: {
    inputSchema: 'CloudEventSchemaV1_0'
    disableLocalAuth: true
    publicNetworkAccess: 'Enabled'
  }
}

resource sending 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(topic.id, principalId, dataSender)
  scope: topic
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataSender)
  }
}

resource diagnostics 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'tocsin'
  scope: topic
  properties: {
    workspaceId: workspaceId
    logs: [
      { category: 'DeliveryFailures', enabled: true }
      { category: 'PublishFailures', enabled: true }
    ]
    metrics: [
      { category: 'AllMetrics', enabled: platformMetrics }
    ]
  }
}

output endpoint string = topic.properties.endpoint
