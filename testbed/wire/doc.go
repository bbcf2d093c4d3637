// SPDX-License-Identifier: Apache-2.0

// Package wire has the messages between the host and the guest's init over a
// virtio serial port: one JSON object a line. The bytes of the command's
// standard streams travel over ports of their own, so that they arrive
// exactly as written; the exit message carries their lengths.
//
// To send something new, add a field to a message of both sides.
package wire
