"""Bytes by digest: the seam between what keeps them and whoever writes and reads them."""
