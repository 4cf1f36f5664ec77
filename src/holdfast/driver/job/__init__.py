"""The life of a job: the machine that decides, and the runner that carries out its instructions."""
