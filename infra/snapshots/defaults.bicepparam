// What `azd up` makes of nothing but a name and a region.
using '../main.bicep'

param environmentName = 'test'
param location = 'westeurope'
param firstAdminKey = ''
param firstSigningKey = ''
