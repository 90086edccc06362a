"""The dependencies of this repository: pins, software bills of materials, and known vulnerabilities."""
