metadata description = 'Lets the app send to the queues and topics of one Service Bus namespace (channels `servicebus`).'

@description('Name of the namespace.')
param name string

@description('Principal of the app.')
param principalId string

// Azure Service Bus Data Sender: send, and nothing else.
var dataSender = '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39'

resource namespace 'Microsoft.ServiceBus/namespaces@2021-11-01' existing = {
  name: name
}

resource sending 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(namespace.id, principalId, dataSender)
  scope: namespace
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataSender)
  }
}
