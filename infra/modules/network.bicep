metadata description = 'A virtual network: one subnet for the app, one for private endpoints, and the zones that name these.'

param token string
param location string
param tags object

var appSubnet = 'app'
var endpointSubnet = 'endpoints'
var zoneNames = [
  'privatelink.blob.${environment().suffixes.storage}'
  'privatelink.queue.${environment().suffixes.storage}'
  'privatelink.table.${environment().suffixes.storage}'
  'privatelink.vaultcore.azure.net'
]

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
  for name in zoneNames: {
    name: name
    location: 'global'
    tags: tags
  }
]

resource links 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2020-06-01' = [
  for (name, index) in zoneNames: {
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
output zoneIds object = {
  blob: zones[0].id
  queue: zones[1].id
  table: zones[2].id
  vault: zones[3].id
}
