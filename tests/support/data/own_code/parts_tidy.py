"""A file that another one needs."""


def half(states):
    """What is added of a layer's result."""
    return 0.5 * states
