"""Rehearsals: the scheduler itself in front of simulated servers, in virtual time."""
