"""Fuzz that stays: a few fresh cases of everything hostile at each run; after each batch, innocents come through."""
