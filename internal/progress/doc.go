// SPDX-License-Identifier: Apache-2.0

// Package progress takes completions from a NIC and passes them to the program: it decides which
// goroutine polls the completion queues and when, how long a goroutine polls before it sleeps,
// and which events wake it. Change it to make progress in another way, or to give a program its
// completions in another way. Package cqueue has the completion queues, and package workqueue
// takes the completions of a connection.
package progress
