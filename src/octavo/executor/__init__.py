"""How the engine core reaches the workers that run the model."""
