"""Functions of dates, times, time zones and intervals."""
