metadata description = 'The vault with the admin key and the signing key. The app may read these two and the client certificates that are listed, and nothing else in it.'

param name string
param location string

@description('Written when not empty.')
@secure()
param adminKey string

@description('Written when not empty.')
@secure()
param signingKey string

@description('Whether the vault holds both secrets already.')
param keysInVault bool

@description('Written if there is neither `adminKey` nor a secret in the vault.')
@secure()
param firstAdminKey string

@description('The same for the signing key.')
@secure()
param firstSigningKey string

@description('Names of the secrets or certificates in it that are client certificates of channels.')
param clientSecretNames array

@description('Principal of the app.')
param principalId string

@description('Whether only private endpoints lead to it.')
param privateOnly bool
param workspaceId string

@description('Whether Azure\'s own metrics go to the workspace too.')
param platformMetrics bool
param tags object

var secretsUser = '4633458b-17de-408a-b874-0445c86b69e6'
var adminKeyName = 'tocsin-admin-key'
var signingKeyName = 'tocsin-signing-key'

resource vault 'Microsoft.KeyVault/vaults@2023-07-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    tenantId: tenant().tenantId
    sku: { family: 'A', name: 'standard' }
    enableRbacAuthorization: true
    enableSoftDelete: true
    softDeleteRetentionInDays: 90
    enablePurgeProtection: true
    publicNetworkAccess: privateOnly ? 'Disabled' : 'Enabled'
    networkAcls: {
      bypass: 'None'
      defaultAction: privateOnly ? 'Deny' : 'Allow'
    }
  }
}

resource adminKeySecret 'Microsoft.KeyVault/vaults/secrets@2023-07-01' = if (!empty(adminKey)) {
  parent: vault
  name: adminKeyName
  properties: {
    value: adminKey
    contentType: 'text/plain'
  }
}

resource signingKeySecret 'Microsoft.KeyVault/vaults/secrets@2023-07-01' = if (!empty(signingKey)) {
  parent: vault
  name: signingKeyName
  properties: {
    value: signingKey
    contentType: 'text/plain'
  }
}

// A generated key must never replace one that is in use: with another signing key every webhook secret would be another.
module firstAdminKeySecret 'first-secret.bicep' = if (!keysInVault && empty(adminKey) && !empty(firstAdminKey)) {
  name: 'first-admin-key'
  params: {
    vaultName: vault.name
    name: adminKeyName
    value: firstAdminKey
  }
}

module firstSigningKeySecret 'first-secret.bicep' = if (!keysInVault && empty(signingKey) && !empty(firstSigningKey)) {
  name: 'first-signing-key'
  params: {
    vaultName: vault.name
    name: signingKeyName
    value: firstSigningKey
  }
}

// Azure refuses a role on a secret that is not there, so a deployment assigns one only if it writes the secret or knows of it.
resource adminKeyReading 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (keysInVault || !empty(adminKey) || !empty(firstAdminKey)) {
  name: guid(vault.id, adminKeyName, principalId, secretsUser)
  scope: adminKeySecret
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', secretsUser)
  }
  dependsOn: [
    firstAdminKeySecret
  ]
}

resource signingKeyReading 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (keysInVault || !empty(signingKey) || !empty(firstSigningKey)) {
  name: guid(vault.id, signingKeyName, principalId, secretsUser)
  scope: signingKeySecret
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', secretsUser)
  }
  dependsOn: [
    firstSigningKeySecret
  ]
}

resource clientSecrets 'Microsoft.KeyVault/vaults/secrets@2023-07-01' existing = [
  for secret in clientSecretNames: {
    parent: vault
    name: secret
  }
]

resource clientSecretReading 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (secret, index) in clientSecretNames: {
    name: guid(vault.id, secret, principalId, secretsUser)
    scope: clientSecrets[index]
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', secretsUser)
    }
  }
]

resource audit 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'tocsin'
  scope: vault
  properties: {
    workspaceId: workspaceId
    logs: [
      { category: 'AuditEvent', enabled: true }
    ]
    metrics: [
      { category: 'AllMetrics', enabled: platformMetrics }
    ]
  }
}

output id string = vault.id
output name string = vault.name
output adminKeyUri string = '${vault.properties.vaultUri}secrets/${adminKeyName}'
output signingKeyUri string = '${vault.properties.vaultUri}secrets/${signingKeyName}'
