"""`tocsin apply` and `tocsin export`: tenants, channels, fleets and schedules declared in one YAML file."""
