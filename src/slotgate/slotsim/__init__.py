"""A pure model of a llama-server, faithful in its faults."""
