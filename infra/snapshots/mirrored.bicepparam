// Two accounts in two regions, for durability `mirrored`, and instances with a core.
using '../main.bicep'

param environmentName = 'test'
param location = 'westeurope'
param mirrorLocation = 'northeurope'
param instanceMemory = 2048
