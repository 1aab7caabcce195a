"""slotsim over real sockets."""
