"""What differs between machines: memory, streams, events; detection without torch."""
