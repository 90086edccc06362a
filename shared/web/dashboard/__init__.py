"""The dashboard: a page for operators. Its files are in `assets/` and served as they are; see docs/reference/dashboard.md."""
