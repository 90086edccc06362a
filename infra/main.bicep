metadata description = 'Tocsin on Azure: the app, its storage accounts, keys, and what watches over them.'

targetScope = 'subscription'

@description('Name of the environment: part of the names of the resource groups and of all tags.')
@minLength(1)
@maxLength(32)
param environmentName string

@description('Region of the app and of its home account: one that has Flex Consumption.')
@allowed([
  'australiaeast'
  'australiasoutheast'
  'brazilsouth'
  'canadacentral'
  'centralindia'
  'centralus'
  'eastasia'
  'eastus'
  'eastus2'
  'francecentral'
  'germanywestcentral'
  'italynorth'
  'japaneast'
  'koreacentral'
  'northcentralus'
  'northeurope'
  'norwayeast'
  'southafricanorth'
  'southcentralus'
  'southeastasia'
  'southindia'
  'spaincentral'
  'swedencentral'
  'uaenorth'
  'uksouth'
  'ukwest'
  'westcentralus'
  'westeurope'
  'westus'
  'westus2'
  'westus3'
])
@metadata({
  azd: {
    type: 'location'
  }
})
param location string

@description('Region of the second storage account, for durability `mirrored`; none when empty. Best another one than `location`.')
param mirrorLocation string = ''

@description('Region of a second app on the same accounts, for when the region of the first is lost; none when empty.')
param standbyLocation string = ''

@description('Redundancy of every account, that of the deployed package included. Two of them need a region with availability zones.')
@allowed([
  'Standard_LRS'
  'Standard_ZRS'
  'Standard_GRS'
  'Standard_GZRS'
])
param redundancy string = 'Standard_ZRS'

@description('How many further accounts take shards (TOCSIN_ACCOUNTS). Only ever raise it: shards name their account by its number.')
@minValue(0)
@maxValue(15)
param scaleAccounts int = 0

@description('Numbers of the accounts that take new shards (TOCSIN_NEW_SHARDS); all when empty.')
param newShards string = ''

@description('The second account is given up (TOCSIN_MIRROR_DETACHED): empty, `yes` or `stale`. Needs an empty `mirrorLocation`.')
@allowed([
  ''
  'yes'
  'stale'
])
param mirrorDetached string = ''

@description('The bootstrap admin key. Written to the vault when given; what the vault has stays when empty.')
@secure()
param adminKey string = ''

@description('The master key that webhook secrets are derived from. Written to the vault when given; what the vault has stays when empty.')
@secure()
param signingKey string = ''

@description('Whether the vault holds both keys already, so that the app gets its roles on them though this deployment writes neither.')
param keysInVault bool = false

@description('Admin key of a new installation, which azd generates: written if the vault has none, and neither `adminKey` nor `keysInVault` is given.')
@secure()
@metadata({
  azd: {
    type: 'generate'
    config: {
      length: 48
      noSpecial: true
    }
  }
})
param firstAdminKey string

@description('Signing key of a new installation, in the same way.')
@secure()
@metadata({
  azd: {
    type: 'generate'
    config: {
      length: 48
      noSpecial: true
    }
  }
})
param firstSigningKey string

@description('Kafka topics whose messages are events, each with its tenant\'s `uid` and without passwords (TOCSIN_KAFKA_SOURCES).')
param kafkaSources array = []

@description('Hosts and networks that http channels may reach beside public https (TOCSIN_EGRESS_ALLOW).')
param egressAllow string = ''

@description('Events a second at which a backlog drains after an outage (TOCSIN_BACKLOG_PER_SECOND).')
@minValue(50)
param backlogPerSecond int = 2000

@description('Whether to make an Event Grid topic that channels may deliver to.')
param eventGridTopic bool = false

@description('Resource ids of Service Bus namespaces that channels of every tenant may send to with the app\'s identity.')
param serviceBusNamespaces array = []

@description('Client certificates of http channels (TOCSIN_CLIENT_CERTIFICATES), each `{ tenant, uid, name, secret }` with the tenant\'s `uid`; the vault must hold the secret or certificate.')
param clientCertificates array = []

@description('Resource groups of this subscription whose VMs the app may approve Scheduled Events for (transport `arm`).')
param armResourceGroups array = []

@description('Whether accounts and vault are reached through private endpoints alone. The app itself stays public.')
param privateNetwork bool = false

@description('Whether the app calls out from one fixed address per region, which receivers can allow: a virtual network with a NAT gateway.')
param natGateway bool = false

@description('Whether Azure refuses to delete the accounts that hold events, until somebody removes their locks.')
param deleteLock bool = false

@description('Memory of an instance in MB. Its cores follow from it: a quarter, one or two. The price of a second is in proportion to the memory.')
@allowed([
  512
  2048
  4096
])
param instanceMemory int = 512

@description('The most instances of each group of functions: all HTTP functions are one, and every other function is one of its own.')
@minValue(1)
@maxValue(1000)
param maximumInstances int = 100

@description('HTTP requests that one instance serves side by side: at most, and when 0, as many as an eighth of its memory has room for bodies.')
@minValue(0)
@maxValue(1000)
param httpConcurrency int = 0

@description('Instances that are always ready, such as `http=1,function:fire_shard=1`; none when empty.')
param alwaysReady string = ''

@description('Whether the instances of the app are spread over availability zones. Azure then keeps two of each group ready, and bills them.')
param zoneRedundant bool = false

@description('How instances are replaced at a deployment or a change of settings: all at once, or in batches. Not every region has the second.')
@allowed([
  'Recreate'
  'RollingUpdate'
])
param siteUpdateStrategy string = 'Recreate'

@description('Further settings of the app, by name: those that no parameter covers. The history of deployments shows them: a secret must be a reference to a vault.')
param furtherSettings object = {}

@description('Where alerts are sent; alerts are raised but not sent when empty.')
param alertEmail string = ''

@description('Minutes between two runs of the alert rule; 0 creates no rule. A shorter time costs more.')
@allowed([
  0
  5
  10
  15
])
param alertMinutes int = 15

@description('Days that logs are kept.')
@minValue(30)
@maxValue(730)
param logDays int = 30

@description('Whether each write and delete of storage is logged: an audit, and one log row a transaction.')
param storageAudit bool = false

@description('Store Azure\'s own metrics of each resource with the logs, at the price of logs. The portal shows them in either case.')
param platformMetrics bool = false

@description('Gigabytes of logs a day after which Azure stores no more until the next day, also none for alarms; 0 sets no limit.')
@minValue(0)
param logDailyGigabytes int = 0

@description('Share of the requests that are traced, with the deliveries of their events: a number from 0 to 1.')
param traceShare string = '0.1'

@description('Further tags of all resources.')
param tags object = {}

var token = toLower(uniqueString(subscription().id, environmentName, location))
var allTags = union(tags, { 'azd-env-name': environmentName })
var mirrored = !empty(mirrorLocation)
// The host takes four to nine times the size of a body before the app sees it, or the key with it: all bodies at once stay within an eighth
// of the memory. One of sixteen requests may be as large as the largest batch; an instance that is too small for that takes whole megabytes.
var largestBatch = 16777216
var bodyRoom = instanceMemory * 131072
var bodyLimit = bodyRoom / 16 < largestBatch ? bodyRoom / 16 / 1000000 * 1000000 : largestBatch
var mostRequests = bodyRoom / bodyLimit
var requestsAtOnce = httpConcurrency == 0 || httpConcurrency > mostRequests ? mostRequests : httpConcurrency
// The shards that are served at a time stay below a part of it too; their events take several times their bytes in memory.
var shardBytes = instanceMemory == 512 ? 16777216 : 67108864
// Flex Consumption has these regions, and they have no availability zones.
var withoutZones = [
  'australiasoutheast'
  'northcentralus'
  'southindia'
  'ukwest'
  'westcentralus'
  'westus'
]
var zonal = endsWith(redundancy, 'ZRS')
var wrongRegions = filter([location, mirrorLocation, standbyLocation], each => contains(withoutZones, each))
var checkedRedundancy = zonal && !empty(wrongRegions)
  ? fail('redundancy: ${join(wrongRegions, ', ')} has no availability zones, which ${redundancy} needs. Choose another region, or azd env set TOCSIN_REDUNDANCY Standard_LRS')
  : redundancy
var checkedZones = zoneRedundant && !zonal
  ? fail('zoneRedundant: without an account in several zones nobody would deliver after the loss of one. azd env set TOCSIN_REDUNDANCY Standard_ZRS')
  : zoneRedundant
var readyInstances = map(filter(split(alwaysReady, ','), each => !empty(trim(each))), each => {
  name: trim(split(each, '=')[0])
  instanceCount: int(trim(split(each, '=')[1]))
})
var auditLogs = storageAudit ? ['StorageWrite', 'StorageDelete'] : []

// The names of shared/storage/names.py; a test compares them.
var allTables = [
  'TocsinEvents'
  'TocsinShards'
  'TocsinLedger'
  'TocsinIds'
  'TocsinLimits'
  'TocsinSchedules'
  'TocsinTenants'
  'TocsinFleets'
  'TocsinTurns'
  'TocsinMaintenance'
  'TocsinSweeps'
]
// The poison queues too: the host puts messages there, and the sweep reads them from the first minute on.
var allQueues = [
  'tocsin-ingest'
  'tocsin-ingest-poison'
  'tocsin-retries'
  'tocsin-retries-poison'
  'tocsin-shards'
  'tocsin-shards-poison'
  'tocsin-sweeps'
  'tocsin-sweeps-poison'
]
var shardTables = [
  'TocsinEvents'
  'TocsinShards'
  'TocsinSweeps'
]
var scaleNames = [for number in range(1, scaleAccounts): 'tocsin${number}${token}']

resource group 'Microsoft.Resources/resourceGroups@2024-03-01' = {
  name: 'rg-tocsin-${environmentName}'
  location: location
  tags: allTags
}

resource standbyGroup 'Microsoft.Resources/resourceGroups@2024-03-01' = if (!empty(standbyLocation)) {
  name: 'rg-tocsin-${environmentName}-standby'
  location: standbyLocation
  tags: allTags
}

module identity 'modules/identity.bicep' = {
  name: 'identity'
  scope: group
  params: {
    name: 'id-tocsin-${token}'
    location: location
    tags: allTags
  }
}

// It has no roles, here or elsewhere: channels send its tokens to APIs that the operator lists for a tenant.
module tokenIdentity 'modules/identity.bicep' = {
  name: 'token-identity'
  scope: group
  params: {
    name: 'id-tocsin-tokens-${token}'
    location: location
    tags: allTags
  }
}

module monitoring 'modules/monitoring.bicep' = {
  name: 'monitoring'
  scope: group
  params: {
    token: token
    location: location
    logDays: logDays
    dailyGigabytes: logDailyGigabytes
    principalId: identity.outputs.principalId
    tags: allTags
  }
}

module vault 'modules/vault.bicep' = {
  name: 'vault'
  scope: group
  params: {
    name: 'kv${token}'
    location: location
    adminKey: adminKey
    signingKey: signingKey
    keysInVault: keysInVault
    firstAdminKey: firstAdminKey
    firstSigningKey: firstSigningKey
    clientSecretNames: union(map(clientCertificates, each => each.secret), [])
    principalId: identity.outputs.principalId
    privateOnly: privateNetwork
    workspaceId: monitoring.outputs.workspaceId
    platformMetrics: platformMetrics
    tags: allTags
  }
}

module home 'modules/storage.bicep' = {
  name: 'storage-home'
  scope: group
  params: {
    name: 'tocsin0${token}'
    location: location
    redundancy: checkedRedundancy
    deleteLock: deleteLock
    tables: allTables
    queues: allQueues
    principalId: identity.outputs.principalId
    privateOnly: privateNetwork
    workspaceId: monitoring.outputs.workspaceId
    platformMetrics: platformMetrics
    auditLogs: auditLogs
    tags: allTags
  }
}

module scale 'modules/storage.bicep' = [
  for (name, index) in scaleNames: {
    name: 'storage-scale-${index + 1}'
    scope: group
    params: {
      name: name
      location: location
      redundancy: checkedRedundancy
      deleteLock: deleteLock
      tables: shardTables
      queues: []
      principalId: identity.outputs.principalId
      privateOnly: privateNetwork
      workspaceId: monitoring.outputs.workspaceId
      platformMetrics: platformMetrics
      auditLogs: auditLogs
      tags: allTags
    }
  }
]

module mirror 'modules/storage.bicep' = if (mirrored) {
  name: 'storage-mirror'
  scope: group
  params: {
    name: 'tocsinm${token}'
    location: mirrorLocation
    redundancy: checkedRedundancy
    deleteLock: deleteLock
    tables: allTables
    queues: allQueues
    principalId: identity.outputs.principalId
    privateOnly: privateNetwork
    workspaceId: monitoring.outputs.workspaceId
    platformMetrics: platformMetrics
    auditLogs: auditLogs
    tags: allTags
  }
}

module topic 'modules/topic.bicep' = if (eventGridTopic) {
  name: 'topic'
  scope: group
  params: {
    name: 'evgt-tocsin-${token}'
    location: location
    principalId: identity.outputs.principalId
    workspaceId: monitoring.outputs.workspaceId
    platformMetrics: platformMetrics
    tags: allTags
  }
}

module serviceBus 'modules/servicebus.bicep' = [
  for id in serviceBusNamespaces: {
    name: 'servicebus-${uniqueString(id, token)}'
    scope: resourceGroup(split(id, '/')[2], split(id, '/')[4])
    params: {
      name: last(split(id, '/'))
      principalId: identity.outputs.principalId
    }
  }
]

module acknowledge 'modules/acknowledge.bicep' = [
  for name in armResourceGroups: {
    name: 'acknowledge-${uniqueString(name, token)}'
    scope: resourceGroup(name)
    params: {
      principalId: identity.outputs.principalId
    }
  }
]

// Without the slash at its end.
var resourceManager = join(take(split(environment().resourceManager, '/'), 3), '/')

var homeSettings = {
  TocsinStorage__tableServiceUri: home.outputs.tableUri
  TocsinStorage__queueServiceUri: home.outputs.queueUri
  TocsinStorage__credential: 'managedidentity'
  TocsinStorage__clientId: identity.outputs.clientId
  TOCSIN_ADMIN_KEY: '@Microsoft.KeyVault(SecretUri=${vault.outputs.adminKeyUri})'
  TOCSIN_SIGNING_KEY: '@Microsoft.KeyVault(SecretUri=${vault.outputs.signingKeyUri})'
  TOCSIN_ACCOUNTS: string(scaleNames)
  TOCSIN_NEW_SHARDS: newShards
  TOCSIN_MIRROR_DETACHED: mirrorDetached
  TOCSIN_KAFKA_SOURCES: empty(kafkaSources) ? '' : string(kafkaSources)
  TOCSIN_EGRESS_ALLOW: egressAllow
  TOCSIN_CLIENT_CERTIFICATES: join(
    map(
      clientCertificates,
      each =>
        '${each.tenant}@${each.uid}/${each.name}=https://kv${token}${environment().suffixes.keyvaultDns}/secrets/${each.secret}'
    ),
    ','
  )
  TOCSIN_SERVICE_BUS: join(map(serviceBusNamespaces, id => '${last(split(id, '/'))}.servicebus.windows.net'), ',')
  TOCSIN_TOKEN_CLIENT_ID: tokenIdentity.outputs.clientId
  TOCSIN_BACKLOG_PER_SECOND: string(backlogPerSecond)
  TOCSIN_ARM_ENDPOINT: resourceManager
  APPLICATIONINSIGHTS_AUTHENTICATION_STRING: 'ClientId=${identity.outputs.clientId};Authorization=AAD'
  TOCSIN_FIRE_BYTES: string(shardBytes)
  OTEL_TRACES_SAMPLER: 'parentbased_traceidratio'
  OTEL_TRACES_SAMPLER_ARG: traceShare
  FUNCTIONS_REQUEST_BODY_SIZE_LIMIT: string(bodyLimit)
  AzureWebJobsDisableHomepage: 'true'
}
// An account that is not there must not be in the settings: an empty trigger connection would stop the host.
var mirrorSettings = !mirrored
  ? {}
  : {
      TocsinMirror__tableServiceUri: mirror!.outputs.tableUri
      TocsinMirror__queueServiceUri: mirror!.outputs.queueUri
      TocsinMirror__credential: 'managedidentity'
      TocsinMirror__clientId: identity.outputs.clientId
    }
var secretEndings = ['KEY', 'SECRET', 'HEADERS', 'PASSWORD', 'TOKEN', 'CONNECTION_STRING', 'KAFKA_SOURCES']
var shownSecrets = filter(
  objectKeys(furtherSettings),
  name =>
    !startsWith(string(furtherSettings[name]), '@Microsoft.KeyVault(') && (contains(
      toLower(string(furtherSettings[name])),
      'accesskey='
    ) || contains(toLower(string(furtherSettings[name])), 'accountkey=') || length(filter(
      secretEndings,
      ending => endsWith(toUpper(name), ending)
    )) > 0)
)
var checkedSettings = empty(shownSecrets)
  ? furtherSettings
  : fail('furtherSettings: the history of deployments would show ${join(shownSecrets, ', ')}. Store each in the vault and give a reference: @Microsoft.KeyVault(SecretUri=https://VAULT.vault.azure.net/secrets/NAME)')
var settings = union(homeSettings, mirrorSettings, checkedSettings)

var homeTargets = [
  { name: 'home-table', id: home.outputs.id, group: 'table' }
  { name: 'home-queue', id: home.outputs.id, group: 'queue' }
  { name: 'vault', id: vault.outputs.id, group: 'vault' }
]
var mirrorId = mirrored ? mirror!.outputs.id : ''
var mirrorTargets = !mirrored
  ? []
  : [
      { name: 'mirror-table', id: mirrorId, group: 'table' }
      { name: 'mirror-queue', id: mirrorId, group: 'queue' }
    ]

module place 'modules/place.bicep' = {
  name: 'place'
  scope: group
  params: {
    token: token
    service: 'app'
    location: location
    identityId: identity.outputs.id
    tokenIdentityId: tokenIdentity.outputs.id
    clientId: identity.outputs.clientId
    principalId: identity.outputs.principalId
    settings: settings
    insightsName: monitoring.outputs.insightsName
    insightsGroup: group.name
    workspaceId: monitoring.outputs.workspaceId
    platformMetrics: platformMetrics
    instanceMemory: instanceMemory
    maximumInstances: maximumInstances
    httpConcurrency: requestsAtOnce
    alwaysReady: readyInstances
    zoneRedundant: checkedZones
    siteUpdateStrategy: siteUpdateStrategy
    privateNetwork: privateNetwork
    natGateway: natGateway
    redundancy: checkedRedundancy
    targets: concat(homeTargets, mirrorTargets)
    scaleTargets: [for index in range(0, scaleAccounts): scale[index].outputs.id]
    tags: allTags
  }
}

module standby 'modules/place.bicep' = if (!empty(standbyLocation)) {
  name: 'standby'
  scope: standbyGroup
  params: {
    token: '${token}s'
    service: 'standby'
    location: standbyLocation
    identityId: identity.outputs.id
    tokenIdentityId: tokenIdentity.outputs.id
    clientId: identity.outputs.clientId
    principalId: identity.outputs.principalId
    settings: settings
    insightsName: monitoring.outputs.insightsName
    insightsGroup: group.name
    workspaceId: monitoring.outputs.workspaceId
    platformMetrics: platformMetrics
    instanceMemory: instanceMemory
    maximumInstances: maximumInstances
    httpConcurrency: requestsAtOnce
    alwaysReady: []
    zoneRedundant: false
    siteUpdateStrategy: siteUpdateStrategy
    privateNetwork: privateNetwork
    natGateway: natGateway
    redundancy: checkedRedundancy
    targets: concat(homeTargets, mirrorTargets)
    scaleTargets: [for index in range(0, scaleAccounts): scale[index].outputs.id]
    tags: allTags
  }
}

module alerts 'modules/alerts.bicep' = if (alertMinutes > 0) {
  name: 'alerts'
  scope: group
  params: {
    token: token
    location: location
    workspaceId: monitoring.outputs.workspaceId
    email: alertEmail
    minutes: alertMinutes
    tags: allTags
  }
}

module workbook 'modules/workbook.bicep' = {
  name: 'workbook'
  scope: group
  params: {
    location: location
    workspaceId: monitoring.outputs.workspaceId
    tags: allTags
  }
}

output AZURE_RESOURCE_GROUP string = group.name
output TOCSIN_ARM_ENDPOINT string = resourceManager
output TOCSIN_URL string = place.outputs.url
output TOCSIN_APP string = place.outputs.appName
output TOCSIN_VAULT string = vault.outputs.name
output TOCSIN_HOME_ACCOUNT string = home.outputs.name
output TOCSIN_OUTBOUND_ADDRESS string = place.outputs.outboundAddress
output TOCSIN_TOPIC string = eventGridTopic ? topic!.outputs.endpoint : ''
output TOCSIN_STANDBY_URL string = empty(standbyLocation) ? '' : standby!.outputs.url
output TOCSIN_STANDBY_OUTBOUND_ADDRESS string = empty(standbyLocation) ? '' : standby!.outputs.outboundAddress
output TOCSIN_STANDBY_APP string = empty(standbyLocation) ? '' : standby!.outputs.appName
