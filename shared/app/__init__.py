"""The wiring: settings, ports and optional parts in, one application with its routes and timers out."""
