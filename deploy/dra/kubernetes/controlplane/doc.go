// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs Kubernetes' own control plane for tests: etcd, kube-apiserver, kube-scheduler and
// kube-controller-manager, each as a process of the test binary. To run another component, or one with other
// flags, change it.
package controlplane
