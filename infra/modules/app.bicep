metadata description = 'The function app on Flex Consumption, Python 3.13.'

param token string

@description('Which service of azure.yaml is deployed here.')
param service string
param location string
param identityId string

@description('A second identity, without roles, whose tokens channels send.')
param tokenIdentityId string
param clientId string

@description('Settings that every region has alike.')
param settings object
param insightsName string
param insightsGroup string
param workspaceId string

@description('Whether Azure\'s own metrics go to the workspace too.')
param platformMetrics bool

@description('Blob endpoint of the host account, with a slash at its end.')
param hostBlobUri string
param deploymentContainer string
param instanceMemory int
param maximumInstances int
param httpConcurrency int
param alwaysReady array
param siteUpdateStrategy string

@description('Whether instances are spread over availability zones.')
param zoneRedundant bool

@description('Subnet that the app reaches its storage through; none when empty.')
param subnetId string
param tags object

resource insights 'Microsoft.Insights/components@2020-02-02' existing = {
  name: insightsName
  scope: resourceGroup(insightsGroup)
}

resource plan 'Microsoft.Web/serverfarms@2024-11-01' = {
  name: 'plan-tocsin-${token}'
  location: location
  tags: tags
  kind: 'functionapp'
  sku: {
    name: 'FC1'
    tier: 'FlexConsumption'
  }
  properties: {
    reserved: true
    zoneRedundant: zoneRedundant
  }
}

resource app 'Microsoft.Web/sites@2024-11-01' = {
  name: 'func-tocsin-${token}'
  location: location
  tags: union(tags, { 'azd-service-name': service })
  kind: 'functionapp,linux'
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identityId}': {}
      '${tokenIdentityId}': {}
    }
  }
  properties: {
    serverFarmId: plan.id
    httpsOnly: true
    keyVaultReferenceIdentity: identityId
    virtualNetworkSubnetId: empty(subnetId) ? null : subnetId
    // Flex Consumption refuses most properties of `siteConfig`, ftpsState and linuxFxVersion among them (error 51021).
    siteConfig: {
      minTlsVersion: '1.2'
      scmMinTlsVersion: '1.2'
    }
    functionAppConfig: {
      deployment: {
        storage: {
          type: 'blobContainer'
          value: '${hostBlobUri}${deploymentContainer}'
          authentication: {
            type: 'UserAssignedIdentity'
            userAssignedIdentityResourceId: identityId
          }
        }
      }
      runtime: {
        name: 'python'
        version: '3.13'
      }
      #disable-next-line BCP037 // Documented for this API version; the published types lack it.
      siteUpdateStrategy: {
        type: siteUpdateStrategy
      }
      scaleAndConcurrency: {
        instanceMemoryMB: instanceMemory
        maximumInstanceCount: maximumInstances
        alwaysReady: alwaysReady
        triggers: {
          http: {
            perInstanceConcurrency: httpConcurrency
          }
        }
      }
    }
  }
}

// Deployments are authorized by Azure's own roles; the older passwords stay off. Flex Consumption has no FTP.
resource scmPasswords 'Microsoft.Web/sites/basicPublishingCredentialsPolicies@2024-11-01' = {
  parent: app
  name: 'scm'
  #disable-next-line BCP187 // Azure refuses the resource without it; the published types lack it.
  location: location
  properties: {
    allow: false
  }
}

var hostSettings = {
  AzureWebJobsStorage__blobServiceUri: hostBlobUri
  AzureWebJobsStorage__credential: 'managedidentity'
  AzureWebJobsStorage__clientId: clientId
  APPLICATIONINSIGHTS_CONNECTION_STRING: insights.properties.ConnectionString
}

resource appSettings 'Microsoft.Web/sites/config@2024-11-01' = {
  parent: app
  name: 'appsettings'
  properties: union(settings, hostSettings)
}

// The host's logs go to Application Insights; twice would be paid twice.
resource diagnostics 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = if (platformMetrics) {
  name: 'tocsin'
  scope: app
  properties: {
    workspaceId: workspaceId
    metrics: [
      { category: 'AllMetrics', enabled: true }
    ]
  }
}

output name string = app.name
output url string = 'https://${app.properties.defaultHostName}'
