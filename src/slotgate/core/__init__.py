"""Admission: who runs now, who waits, who is refused.  No I/O, no clock, no dice, no await."""
