#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# TaskProlog of Slurm: sets the variables by which NCCL, UCX and NVSHMEM use the NICs next to
# the task's GPUs. slurm-p2p finds them in the plan that p2pcheck-health.sh writes.
# docs/how-to/slurm.md has the lines for slurm.conf.
#
# It runs as the job's user, and never fails: a task starts without these variables rather than
# not at all. Then GPURDMA_NO_NICS says why there are none, because Slurm closes a TaskProlog's
# standard error.
#
# Settings, in /etc/p2pcheck.conf, as of p2pcheck-health.sh: P2PCHECK_NICS (/run/p2pcheck),
# P2PCHECK_SLURM, P2PCHECK_ROOT.
set -u

PATH=${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}

# In a shell of its own, which a mistake in the settings may end.
variables() (
	conf=/etc/p2pcheck.conf
	# shellcheck source=/dev/null
	[ ! -r "$conf" ] || . "$conf"
	slurm=${P2PCHECK_SLURM:-/usr/local/bin/slurm-p2p}
	if [ ! -x "$slurm" ]; then
		echo "export GPURDMA_NO_NICS=$slurm is not there"
		exit 0
	fi
	timeout -k 1 5 "$slurm" task --plan "${P2PCHECK_NICS:-/run/p2pcheck}/${SLURMD_NODENAME:-}.json" --root "${P2PCHECK_ROOT:-/}"
)

# All lines or none: the lines that slurm-p2p printed before a failure do not count.
if lines=$(variables 2>/dev/null); then
	printf '%s\n' "$lines"
else
	echo "export GPURDMA_NO_NICS=slurm-p2p task, or /etc/p2pcheck.conf before it, ended with $?"
fi
exit 0
