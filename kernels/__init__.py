"""The kernel templates, as data: one file `NAME.cl.mako` a variant, `parts/` shared by them."""
