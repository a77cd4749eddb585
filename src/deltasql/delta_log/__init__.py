"""The files of `_delta_log`: names, commit files, checkpoints, `_last_checkpoint`, replay. No database."""
