"""The system's git: worktrees, merges without a checkout, diffs and trees, without hooks and without prompts."""

from interlock.git.command import PROTOCOLS, BranchMoved, GitError, LocalChanges, find_git, run_git
from interlock.git.repository import FileChange, MergeOutcome, Repository, Worktree

__all__ = [
    "PROTOCOLS", "BranchMoved", "FileChange", "GitError", "LocalChanges", "MergeOutcome", "Repository",
    "Worktree", "find_git", "run_git",
]  # fmt: skip
