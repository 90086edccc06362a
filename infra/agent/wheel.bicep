metadata description = 'Lets one VM read the container that holds the wheel.'

param accountName string
param containerName string

@description('Principal of the VM.')
param principalId string

var blobReader = '2a2b9908-6ea1-4ae2-8e65-a410df84e7d1'

resource account 'Microsoft.Storage/storageAccounts@2023-05-01' existing = {
  name: accountName
}

resource blobService 'Microsoft.Storage/storageAccounts/blobServices@2023-05-01' existing = {
  parent: account
  name: 'default'
}

resource packages 'Microsoft.Storage/storageAccounts/blobServices/containers@2023-05-01' existing = {
  parent: blobService
  name: containerName
}

resource reading 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(packages.id, principalId, blobReader)
  scope: packages
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', blobReader)
  }
}
