"""From the graph to levels, chains and exchanges. Knows neither Spark nor how an operator runs."""
