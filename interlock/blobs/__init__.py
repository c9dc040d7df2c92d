"""Blob storage: bytes stored by their digest."""
