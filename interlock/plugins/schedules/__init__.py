"""Schedules: a unit for each instant, made by whoever ticks."""
