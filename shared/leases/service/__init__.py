"""What runs in the app: HTTP servers, take-overs, plans, operators' controls and views."""
