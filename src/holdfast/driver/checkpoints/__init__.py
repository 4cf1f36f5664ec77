"""The checkpoints of a running job: carries out what the checkpoint coordinator decides."""
