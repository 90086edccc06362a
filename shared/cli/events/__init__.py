"""Commands about events: `tocsin events` and `tocsin jobs`. `importing` reads files of events."""
