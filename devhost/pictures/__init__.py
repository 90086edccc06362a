"""Pictures of docs/img, the README and the pages: what draws and records them."""
