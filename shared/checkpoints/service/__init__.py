"""Code that runs in the app: reports, turns and views of replica groups."""
