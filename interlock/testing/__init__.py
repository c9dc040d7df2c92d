"""For tests of programs that use Interlock: a virtual clock, and a worker that is driven step by step."""

from interlock.testing.replay import ReplayDiffers
from interlock.testing.scripted_model import ScriptedModel, usage_of
from interlock.testing.simulation.runner import simulate
from interlock.testing.stage import Stage, staged

__all__ = ["ReplayDiffers", "ScriptedModel", "Stage", "simulate", "staged", "usage_of"]
