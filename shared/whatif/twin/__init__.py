"""Instances of the app on virtual time, with the limits of a core and of a storage account."""
