"""The commands of the command line, a file each: `EXAMPLES`, `add_arguments(parser)` and `run(arguments)`.

`cli.COMMANDS` names them. What is heavy, they import when they run.
"""
