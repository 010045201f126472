"""What is asked for (EngineArgs), what the machine and model allow, and the frozen outcome."""
