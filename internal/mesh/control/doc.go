// SPDX-License-Identifier: Apache-2.0

// Package control carries orders from the coordinator of a mesh to its workers, and their answers: the
// messages with their bounds (message.go, check.go), and the connection that carries them (conn.go). To add
// an order or a field, change this package, and raise Version.
package control
