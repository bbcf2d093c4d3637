// SPDX-License-Identifier: Apache-2.0

// Package kubelet is what the kubelet of a node does with drivers of dynamic resource allocation, for tests: its own
// manager of claims and its own manager of plugins, and a loop that starts and ends pods without containers. To do
// one more thing that the kubelet does with a pod, change it.
package kubelet
