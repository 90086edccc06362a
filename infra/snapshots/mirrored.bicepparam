// Two accounts in two regions, for durability `mirrored`, instances with a core, and one fixed address that the app calls out from.
using '../main.bicep'

param environmentName = 'test'
param location = 'westeurope'
param firstAdminKey = ''
param firstSigningKey = ''
param mirrorLocation = 'northeurope'
param natGateway = true
param instanceMemory = 2048
