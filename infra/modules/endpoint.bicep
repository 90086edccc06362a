metadata description = 'One private endpoint, and its name in the network.'

param name string
param location string
param subnetId string

@description('The account or vault that it leads to.')
param targetId string

@description('What of it: blob, queue, table or vault.')
param group string

@description('Id of the private DNS zone by group.')
param zoneIds object
param tags object

resource endpoint 'Microsoft.Network/privateEndpoints@2024-01-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    subnet: {
      id: subnetId
    }
    privateLinkServiceConnections: [
      {
        name: name
        properties: {
          privateLinkServiceId: targetId
          groupIds: [
            group
          ]
        }
      }
    ]
  }
}

resource naming 'Microsoft.Network/privateEndpoints/privateDnsZoneGroups@2024-01-01' = {
  parent: endpoint
  name: 'default'
  properties: {
    privateDnsZoneConfigs: [
      {
        name: group
        properties: {
          privateDnsZoneId: zoneIds[group]
        }
      }
    ]
  }
}
