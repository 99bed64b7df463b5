"""The commands of the command line, a file each: `EXAMPLES`, `add_arguments(parser)` and `run(arguments)`.

To add one: its file, a line in `main.COMMANDS`, and a case in its test. Heavy imports belong into `run`.
"""
