"""Request and response bodies as msgspec Structs."""
