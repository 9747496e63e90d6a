"""The commands, one file for each subject: what `penstock --help` lists."""
