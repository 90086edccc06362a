// Every part at once.
using '../main.bicep'

param environmentName = 'test'
param location = 'westeurope'
param firstAdminKey = ''
param firstSigningKey = ''
param mirrorLocation = 'northeurope'
param standbyLocation = 'northeurope'
param redundancy = 'Standard_GZRS'
param scaleAccounts = 2
param newShards = '1,2'
param keysInVault = true
param kafkaSources = [
  { servers: 'kafka.internal:9093', topic: 'orders', tenant: 'shop', uid: '0123456789abcdef' }
]
param egressAllow = 'kafka.internal'
param backlogPerSecond = 500
param eventGridTopic = true
param serviceBusNamespaces = [
  '/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/buses/providers/Microsoft.ServiceBus/namespaces/orders'
]
param clientCertificates = [
  { tenant: 'shop', uid: '0123456789abcdef', name: 'bank', secret: 'shop-bank' }
  { tenant: 'pay', uid: '123456789abcdef0', name: 'bank', secret: 'pay-bank' }
]
param armResourceGroups = ['nodes-1', 'nodes-2']
param privateNetwork = true
param natGateway = true
param deleteLock = true
param instanceMemory = 2048
param maximumInstances = 2
param httpConcurrency = 8
param alwaysReady = 'http=1, function:fire_shard=2'
param zoneRedundant = true
param siteUpdateStrategy = 'RollingUpdate'
param furtherSettings = { TOCSIN_OWNERS: '16' }
param alertEmail = 'ops@example.com'
param alertMinutes = 5
param logDays = 90
param storageAudit = true
param platformMetrics = true
param logDailyGigabytes = 5
param traceShare = '1'
param tags = { team: 'shop' }
