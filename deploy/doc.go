// SPDX-License-Identifier: Apache-2.0

// Package deploy is the root of what takes p2pcheck to many machines: the
// manifest for Kubernetes, the health check, the Prolog and the TaskProlog for
// Slurm with the command slurm-p2p, rules for Prometheus, and the commands that
// write the container image and its manifest. make test-slurm runs what is for
// Slurm under the real one.
// ../docs/fleet.md leads to the pages that say how to use them.
//
// It is a Go module of its own, so that Kubernetes' types, which only tests
// need, stay out of the library's requirements.
package deploy
