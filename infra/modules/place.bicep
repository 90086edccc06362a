metadata description = 'One region of the app: host account, app, and where wanted a network with private endpoints.'

param token string

@description('Which service of azure.yaml is deployed here.')
param service string
param location string
param identityId string
param tokenIdentityId string
param clientId string
param principalId string

@description('Settings that every region has alike.')
param settings object
param insightsName string
param insightsGroup string
param workspaceId string

@description('Whether Azure\'s own metrics go to the workspace too.')
param platformMetrics bool
param instanceMemory int
param maximumInstances int
param httpConcurrency int
param alwaysReady array
param siteUpdateStrategy string
param privateNetwork bool

@description('Whether the app calls out from one fixed address.')
param natGateway bool
param redundancy string
param zoneRedundant bool

@description('What to reach by private endpoints: `{ name, id, group }`, group being table, queue or vault.')
param targets array

@description('Ids of the accounts whose tables are to be reached too.')
param scaleTargets array
param tags object

var inNetwork = privateNetwork || natGateway

module network 'network.bicep' = if (inNetwork) {
  name: '${service}-network'
  params: {
    token: token
    location: location
    privateNetwork: privateNetwork
    natGateway: natGateway
    tags: tags
  }
}

module host 'host.bicep' = {
  name: '${service}-host'
  params: {
    name: 'host${token}'
    location: location
    redundancy: redundancy
    principalId: principalId
    privateOnly: privateNetwork
    workspaceId: workspaceId
    platformMetrics: platformMetrics
    tags: tags
  }
}

var endpointSubnetId = privateNetwork ? network!.outputs.endpointSubnetId : ''
var zoneIds = privateNetwork ? network!.outputs.zoneIds : {}

module hostEndpoint 'endpoint.bicep' = if (privateNetwork) {
  name: '${service}-endpoint-host'
  params: {
    name: 'pep-host-${token}'
    location: location
    subnetId: endpointSubnetId
    targetId: host.outputs.id
    group: 'blob'
    zoneIds: zoneIds
    tags: tags
  }
}

module endpoints 'endpoint.bicep' = [
  for target in targets: if (privateNetwork) {
    name: '${service}-endpoint-${target.name}'
    params: {
      name: 'pep-${target.name}-${token}'
      location: location
      subnetId: endpointSubnetId
      targetId: target.id
      group: target.group
      zoneIds: zoneIds
      tags: tags
    }
  }
]

module scaleEndpoints 'endpoint.bicep' = [
  for (id, index) in scaleTargets: if (privateNetwork) {
    name: '${service}-endpoint-scale-${index + 1}'
    params: {
      name: 'pep-scale${index + 1}-table-${token}'
      location: location
      subnetId: endpointSubnetId
      targetId: id
      group: 'table'
      zoneIds: zoneIds
      tags: tags
    }
  }
]

module app 'app.bicep' = {
  name: '${service}-app'
  params: {
    token: token
    service: service
    location: location
    identityId: identityId
    tokenIdentityId: tokenIdentityId
    clientId: clientId
    settings: settings
    insightsName: insightsName
    insightsGroup: insightsGroup
    workspaceId: workspaceId
    platformMetrics: platformMetrics
    hostBlobUri: host.outputs.blobUri
    deploymentContainer: host.outputs.deploymentContainer
    instanceMemory: instanceMemory
    maximumInstances: maximumInstances
    httpConcurrency: httpConcurrency
    alwaysReady: alwaysReady
    siteUpdateStrategy: siteUpdateStrategy
    zoneRedundant: zoneRedundant
    subnetId: inNetwork ? network!.outputs.appSubnetId : ''
    tags: tags
  }
  dependsOn: [
    hostEndpoint
    endpoints
    scaleEndpoints
  ]
}

output url string = app.outputs.url
output outboundAddress string = natGateway ? network!.outputs.outboundAddress : ''
output appName string = app.outputs.name
