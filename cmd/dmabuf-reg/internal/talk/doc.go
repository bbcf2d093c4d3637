// SPDX-License-Identifier: Apache-2.0

// Package talk is what `dmabuf-reg serve` and `connect` say to each other, and
// the bytes by which they check each other's memory.
//
// The client asks and the server answers, one request at a time, in messages
// that begin alike in every version: magic, version, the request's number.
//
// Change talk.go to add a request, and pattern.go to move other bytes.
package talk
