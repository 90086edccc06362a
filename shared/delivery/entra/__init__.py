"""Tokens of Entra that http channels send to APIs: which audiences, to which hosts, and where the tokens come from."""
