// SPDX-License-Identifier: Apache-2.0

// Package slurmtest runs a cluster of Slurm on one machine, with which its tests try what deploy/slurm has:
// slurmctld, munged and a slurmd for each node, in namespaces that enter.sh makes. Change it to configure
// the cluster in another way. make test-slurm runs the tests; elsewhere they skip.
package slurmtest
