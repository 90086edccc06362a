// Accounts and vault without public addresses, an app in each of two regions, four accounts for shards, the largest instances.
using '../main.bicep'

param environmentName = 'test'
param location = 'westeurope'
param firstAdminKey = ''
param firstSigningKey = ''
param standbyLocation = 'northeurope'
param scaleAccounts = 3
param newShards = '1,2,3'
param mirrorDetached = 'yes'
param privateNetwork = true
param instanceMemory = 4096
param httpConcurrency = 1000
