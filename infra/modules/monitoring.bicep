metadata description = 'Log Analytics, and Application Insights on it, which takes telemetry of identities only.'

param token string
param location string
param logDays int

@description('The most gigabytes of logs a day; no limit when 0.')
param dailyGigabytes int

@description('Principal of the app.')
param principalId string
param tags object

var metricsPublisher = '3913510d-42f4-4e42-8a64-420c390055eb'

resource workspace 'Microsoft.OperationalInsights/workspaces@2022-10-01' = {
  name: 'log-tocsin-${token}'
  location: location
  tags: tags
  properties: {
    sku: { name: 'PerGB2018' }
    retentionInDays: logDays
    features: { disableLocalAuth: true }
    workspaceCapping: { dailyQuotaGb: dailyGigabytes == 0 ? -1 : dailyGigabytes }
  }
}

resource insights 'Microsoft.Insights/components@2020-02-02' = {
  name: 'appi-tocsin-${token}'
  location: location
  tags: tags
  kind: 'web'
  properties: {
    Application_Type: 'web'
    WorkspaceResourceId: workspace.id
    DisableLocalAuth: true
  }
}

resource publishing 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(insights.id, principalId, metricsPublisher)
  scope: insights
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', metricsPublisher)
  }
}

output workspaceId string = workspace.id
output insightsName string = insights.name
