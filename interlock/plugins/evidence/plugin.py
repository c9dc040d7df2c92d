"""What blobs, artifacts and logs add to the core."""

from interlock.core.plugin import Plugin
from interlock.kernel.commands import AddArtifact, AddBlob, AppendLog
from interlock.plugins.evidence.artifacts import add_artifact
from interlock.plugins.evidence.blobs import (
    USE_VALUES,
    add_blob,
    restore_rows,
    sweep_blobs,
    sweep_pending,
    use_recorded_value,
)
from interlock.plugins.evidence.late import keep_late_value
from interlock.plugins.evidence.laws import LAWS
from interlock.plugins.evidence.logs import append_log, compress_logs
from interlock.plugins.evidence.queries import (
    TABLES,
    forget_rows,
    list_artifacts,
    list_logs,
    read_log_part,
    read_rows_to_archive,
)
from interlock.plugins.evidence.stories import log_under_a_lease
from interlock.store.hooks import Hooks, OnRecord

PLUGIN = Plugin(
    name="evidence",
    docs="blobs-and-logs.md",
    tables=TABLES,
    commands={AddBlob: add_blob, AddArtifact: add_artifact, AppendLog: append_log},
    queries=(list_artifacts, list_logs, read_log_part),
    laws=LAWS,
    stories=(log_under_a_lease,),
    routes="interlock.plugins.evidence.routes:ROUTES",
    cli="interlock.plugins.evidence.cli:app",
    hooks=Hooks(
        on_record=(OnRecord(lambda kind: kind.is_large, use_recorded_value),),
        on_stale=(keep_late_value,),
        archive_rows=(read_rows_to_archive,),
        restore_rows=(restore_rows,),
        on_forget=(forget_rows,),
        reactions=(USE_VALUES,),
        tick_timers=(sweep_blobs, sweep_pending, compress_logs),
    ),
)
