// Package ledger records which job has which tag of the fabric, on the controller.
//
// A tag is free, reserved for a run of a job, releasing (the job has ended, and some of
// its nodes may still stamp the tag on messages), cooling, or quarantined. It becomes free
// only after every node of the job has confirmed that the tag is gone from its hardware, for
// a P_Key the subnet manager, too, and after the cooling time. Time alone changes one state: a
// tag that has cooled becomes free.
//
// All decisions are those of a pure machine over a small key-value store. A [Ledger] runs
// it in transactions on one bbolt file, which belongs in Slurm's StateSaveLocation: each
// call is whole on disk when it returns, or has not happened. All calls may be repeated, by
// any process. The package neither asks slurmctld nor nodes anything: callers tell it what
// they have heard.
package ledger
