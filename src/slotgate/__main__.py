"""`python -m slotgate`."""

from slotgate.cli import main

main()
