metadata description = 'A secret of a new installation. One that the vault has already stays as it is.'

param vaultName string
param name string

@secure()
param value string

resource vault 'Microsoft.KeyVault/vaults@2023-07-01' existing = {
  name: vaultName
}

@onlyIfNotExists()
resource secret 'Microsoft.KeyVault/vaults/secrets@2023-07-01' = {
  parent: vault
  name: name
  properties: {
    value: value
    contentType: 'text/plain'
  }
}
