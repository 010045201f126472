"""What is made of hidden states: tokens today, pooled vectors later."""
