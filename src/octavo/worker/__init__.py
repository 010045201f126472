"""Model execution: the runner and its parts, from a SchedulerOutput to sampled tokens."""
