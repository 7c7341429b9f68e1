"""Adds to a run's events what the disks of its nodes have and no process recorded.

See docs/decisions/06-missed-evidence.md."""

from __future__ import annotations

from fencepost.events import Codec
from fencepost.history.merge import so_far
from fencepost.history.recorder import Recorder
from fencepost.history.run_end import DISKS
from fencepost.history.run_folder import RunFolder
from fencepost.model.clock import from_wall_ns
from fencepost.model.system.capabilities import ReadsDisks, Remains, layout_of
from fencepost.model.system.subject import Subject


def supply(subject: Subject, folder: RunFolder) -> None:
    """Writes the events, if the system supplies any. The processes of the run have ended.

    Raises EnvironmentFailed when the disk of the run folder is full.
    """
    system, shape = subject.system, subject.shape
    if not isinstance(system, ReadsDisks):
        return
    # In order, though the history is not made yet: it is to contain what is found here.
    events = so_far(folder, Codec(subject.kinds))
    disks = {slot.name: folder.data_of(slot.name) for slot in layout_of(system, shape).slots}
    found = system.read_disks(Remains(disks, events, from_wall_ns), shape)
    if found:
        # A writer of its own, with its own numbers: no process of the run has recorded these
        # events.
        recorder = Recorder.open(folder.events_of(DISKS), folder.run, DISKS, subject.kinds)
        for one in found:
            recorder.record(one.body, one.cause, one.at_ns)
        recorder.close()
