"""The lowerings, one file per family; `rules.load` imports them."""
