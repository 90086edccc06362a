metadata description = 'Lets the app approve Scheduled Events of the VMs in one resource group (maintenance transport `arm`).'

@description('Principal of the app.')
param principalId string

// Scheduled Events Contributor: acknowledge, and read VMs, scale sets and availability sets. Nothing that changes one.
var scheduledEvents = 'b67fe603-310e-4889-b9ee-8257d09d353d'

resource acknowledging 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(resourceGroup().id, principalId, scheduledEvents)
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', scheduledEvents)
  }
}
