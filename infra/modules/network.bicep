metadata description = 'A virtual network: one subnet for the app, one for private endpoints with the zones that name these, and the fixed address that the app calls out from.'

param token string
param location string

@description('Whether there are private endpoints to name.')
param privateNetwork bool

@description('Whether the app calls out through a NAT gateway.')
param natGateway bool
param tags object

var appSubnet = 'app'
var endpointSubnet = 'endpoints'
var zoneNames = [
  'privatelink.blob.${environment().suffixes.storage}'
  'privatelink.queue.${environment().suffixes.storage}'
  'privatelink.table.${environment().suffixes.storage}'
  'privatelink.vaultcore.azure.net'
]

resource outbound 'Microsoft.Network/publicIPAddresses@2024-01-01' = if (natGateway) {
  name: 'pip-tocsin-${token}'
  location: location
  tags: tags
  sku: { name: 'Standard' }
  properties: {
    publicIPAllocationMethod: 'Static'
    publicIPAddressVersion: 'IPv4'
  }
}

resource nat 'Microsoft.Network/natGateways@2024-01-01' = if (natGateway) {
  name: 'nat-tocsin-${token}'
  location: location
  tags: tags
  sku: { name: 'Standard' }
  properties: {
    publicIpAddresses: [
      { id: outbound.id }
    ]
  }
}

// The subnets are part of the network, not children of it: a second deployment of a network without them would take them away.
resource network 'Microsoft.Network/virtualNetworks@2024-01-01' = {
  name: 'vnet-tocsin-${token}'
  location: location
  tags: tags
  properties: {
    addressSpace: {
      addressPrefixes: [
        '10.91.0.0/16'
      ]
    }
    subnets: [
      {
        name: appSubnet
        properties: {
          // An instance takes an address: room for as many as the app may have.
          addressPrefix: '10.91.0.0/20'
          natGateway: natGateway ? { id: nat.id } : null
          // Storage of this region is reached beside the gateway, which bills each byte.
          serviceEndpoints: natGateway && !privateNetwork ? [{ service: 'Microsoft.Storage' }] : []
          delegations: [
            {
              name: 'functions'
              properties: {
                serviceName: 'Microsoft.App/environments'
              }
            }
          ]
        }
      }
      {
        name: endpointSubnet
        properties: {
          addressPrefix: '10.91.16.0/24'
          privateEndpointNetworkPolicies: 'Disabled'
        }
      }
    ]
  }
}

resource zones 'Microsoft.Network/privateDnsZones@2020-06-01' = [
  for name in zoneNames: if (privateNetwork) {
    name: name
    location: 'global'
    tags: tags
  }
]

resource links 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2020-06-01' = [
  for (name, index) in zoneNames: if (privateNetwork) {
    parent: zones[index]
    name: 'tocsin-${token}'
    location: 'global'
    tags: tags
    properties: {
      registrationEnabled: false
      virtualNetwork: {
        id: network.id
      }
    }
  }
]

output appSubnetId string = '${network.id}/subnets/${appSubnet}'
output endpointSubnetId string = '${network.id}/subnets/${endpointSubnet}'
output outboundAddress string = natGateway ? outbound!.properties.ipAddress : ''
output zoneIds object = {
  blob: zones[0].id
  queue: zones[1].id
  table: zones[2].id
  vault: zones[3].id
}
