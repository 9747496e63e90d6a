"""Decides what follows from an ended step: values in, changes out. Pure."""
