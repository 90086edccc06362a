metadata description = 'The agent on the VMs of one resource group: their roles, and its installation on those that run.'

@description('Region of the VMs.')
param location string = resourceGroup().location

@description('VMs of this resource group, each with a system-assigned identity.')
param vmNames array

@description('Address of the app, as https://...')
param appUrl string

@description('The fleet that the nodes belong to.')
param fleet string

@description('Vault that holds one key of scope `agent` a node, and its resource group.')
param vaultName string
param vaultGroup string

@description('The secret of a node is this and the name of its VM, with `--u` for an underscore, `--d` for a dot, and `--h` for two hyphens.')
param keyPrefix string = 'agent-'

@description('Storage account, its resource group, and container of the wheel.')
param wheelAccount string
param wheelGroup string
param wheelContainer string

@description('File name of the wheel, as `make wheel` named it, and its SHA-256 in hexadecimal digits.')
param wheelName string

@minLength(64)
@maxLength(64)
param wheelSha256 string

@description('Further lines of the agent\'s settings, in TOML: hooks, above all.')
param hooks string = ''

@description('Whether to install on the VMs now; `false` gives roles only, for machines that install by cloud-init.')
param install bool = true
param tags object = {}

var wheelUrl = 'https://${wheelAccount}.blob.${environment().suffixes.storage}/${wheelContainer}/${wheelName}'
var config = '${replace(replace(loadTextContent('agent.toml'), '@URL@', appUrl), '@FLEET@', fleet)}${hooks}\n'
var named = replace(replace(loadTextContent('install.sh'), '@WHEEL_URL@', wheelUrl), '@WHEEL_SHA256@', wheelSha256)
var located = replace(
  replace(named, '@VAULT_URL@', 'https://${vaultName}${environment().suffixes.keyvaultDns}'),
  '@SECRET_PREFIX@',
  keyPrefix
)
var script = replace(located, '@CONFIG@', base64(config))

resource machines 'Microsoft.Compute/virtualMachines@2024-07-01' existing = [
  for name in vmNames: {
    name: name
  }
]

module keyAccess 'key.bicep' = [
  for (name, index) in vmNames: {
    name: 'agent-key-${uniqueString(resourceGroup().id, name)}'
    scope: resourceGroup(vaultGroup)
    params: {
      vaultName: vaultName
      secretName: '${keyPrefix}${replace(replace(replace(name, '--', '--h'), '_', '--u'), '.', '--d')}'
      principalId: machines[index].identity.principalId
    }
  }
]

module wheelAccess 'wheel.bicep' = [
  for (name, index) in vmNames: {
    name: 'agent-wheel-${uniqueString(resourceGroup().id, name)}'
    scope: resourceGroup(wheelGroup)
    params: {
      accountName: wheelAccount
      containerName: wheelContainer
      principalId: machines[index].identity.principalId
    }
  }
]

resource installing 'Microsoft.Compute/virtualMachines/extensions@2024-07-01' = [
  for (name, index) in vmNames: if (install) {
    parent: machines[index]
    name: 'tocsin-agent'
    location: location
    tags: tags
    properties: {
      publisher: 'Microsoft.Azure.Extensions'
      type: 'CustomScript'
      typeHandlerVersion: '2.1'
      autoUpgradeMinorVersion: true
      protectedSettings: {
        script: base64(script)
      }
    }
    dependsOn: [
      keyAccess
      wheelAccess
    ]
  }
]

@description('For the `customData` of new machines: installs the agent when they are made. No secret is in it.')
output customData string = base64(replace(loadTextContent('cloud-init.yaml'), '@SCRIPT@', base64(script)))
