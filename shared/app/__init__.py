"""The wiring: settings and ports in, one application with its routes and timers out."""
