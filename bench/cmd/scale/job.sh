#!/bin/bash
# One job of the benchmark, in an allocation with VM options: a step that does nothing, and then the VM step,
# until all nodes have the map.
#
# usage: job.sh LOG
set -euo pipefail
export METER_LOG=$1
here=$(cd "$(dirname "$0")" && pwd)
PATH=$here:$PATH
nodes=$SLURM_JOB_NUM_NODES

# say WORD: logs a line with the time.
say() { echo "$(date +%s%N) $*" >>"$METER_LOG"; }

# ready: prints how many nodes have reported that they have the map.
ready() { grep -c ' ready [0-9]* 1/1$' "$METER_LOG" || true; }

say plain
srun --overlap --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --mpi=none --cpu-bind=none --mem=0 true
say plain-end
say start
slurm-v-run --start
for ((left = 300; left > 0; left--)); do
	(($(ready) < nodes)) || break
	sleep 0.5
done
say end
((left > 0)) || {
	echo "bench/scale: $(ready) of $nodes nodes have the map" >&2
	exit 1
}
