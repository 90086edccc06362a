"""Runs the real `function_app.py` without Azure Functions Core Tools. Development only, never deployed.

    python -m devhost        starts Azurite, a receiver for deliveries and the app

The app is indexed and invoked by the production worker library (`azure_functions_runtime`); `devhost.host` stands
in for the host around it: HTTP routes, queue triggers, timers and settings.
"""
