// SPDX-License-Identifier: Apache-2.0

// Package devnode opens device nodes and explains a refusal: which mode and
// group the node has, and which module makes it when it is missing.
//
// To explain another node, add its module to devnode.go.
package devnode
