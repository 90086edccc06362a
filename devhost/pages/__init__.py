"""Pages of docs/reference that are written from the source: `make reference`."""
