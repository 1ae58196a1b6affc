"""The classifier application, in rooms: options, folders of runs, models, tuning, and running."""
