"""The command line: opens a lake, asks it, shows the answer."""
