"""How the weights of linear layers are stored and multiplied."""
