// The agent on two VMs.
using '../agent/agent.bicep'

param location = 'westeurope'
param vmNames = ['db1', 'db_2']
param appUrl = 'https://app.example.com'
param fleet = 'db'
param vaultName = 'vault'
param vaultGroup = 'vaults'
param wheelAccount = 'wheels'
param wheelGroup = 'wheels'
param wheelContainer = 'wheels'
param wheelName = 'tocsin-0.1.0-py3-none-any.whl'
param wheelSha256 = '0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef'
