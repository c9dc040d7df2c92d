"""What CI adds to the core: so far its commands of the command line, which need no engine."""

from interlock.core.plugin import Plugin

PLUGIN = Plugin(name="ci", docs="ci/README.md", cli="interlock.plugins.ci.cli:app")
