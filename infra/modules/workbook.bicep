metadata description = 'The workbook with the main charts.'

param location string
param workspaceId string
param tags object

resource workbook 'Microsoft.Insights/workbooks@2022-04-01' = {
  name: guid(resourceGroup().id, 'tocsin-workbook')
  location: location
  tags: tags
  kind: 'shared'
  properties: {
    displayName: 'Tocsin'
    category: 'workbook'
    sourceId: workspaceId
    serializedData: loadTextContent('../workbook.json')
  }
}
