"""The commands that `penstock --help` lists, one file for each subject."""
