// SPDX-License-Identifier: Apache-2.0

// Package kubernetes has tests only: the driver against Kubernetes' own control plane, and against the parts of its
// kubelet that talk to drivers. `make test-kubernetes` runs them. To try the driver in one more situation of a
// cluster, add a test here. Package controlplane runs the components, and package kubelet a node.
package kubernetes
