"""`tocsin apply` and `tocsin export`: tenants, channels, calendars, fleets and schedules declared in one YAML file."""
