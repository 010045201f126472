"""Tool calls in a model's answer: one incremental parser core, one table entry per syntax."""
