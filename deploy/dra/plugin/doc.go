// SPDX-License-Identifier: Apache-2.0

// Package plugin is the driver on a node: it looks at the machine, publishes its pairs, and answers the kubelet,
// which asks for the devices of a claim before a pod starts and gives them back after it. To publish sooner or
// more often, or to refuse a claim for another reason, change it.
package plugin
