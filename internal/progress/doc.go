// SPDX-License-Identifier: Apache-2.0

// Package progress takes completions from a NIC and hands them to the program: it decides who
// polls the completion queues and when, how long a goroutine polls before it sleeps, and what
// wakes it. Change it to make progress in another way, or to give a program its completions in
// another way. The completion queues are in package cqueue; the effect of a completion on a
// connection is in package workqueue.
package progress
