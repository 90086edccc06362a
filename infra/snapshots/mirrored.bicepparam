// Two accounts in two regions, for durability `mirrored`, and the smallest instances.
using '../main.bicep'

param environmentName = 'test'
param location = 'westeurope'
param mirrorLocation = 'northeurope'
param instanceMemory = 512
