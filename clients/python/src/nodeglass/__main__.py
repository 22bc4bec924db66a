"""`python -m nodeglass`, which is the command `nodeglass`."""

from ._program import main

main()
