"""The agent's side of the app's API: reports and the answers to them."""
