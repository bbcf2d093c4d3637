// SPDX-License-Identifier: Apache-2.0

// Package spans makes OpenTelemetry spans of the blocking calls of a connection. A program has them
// where it wraps a connection, and only there: the others make none and cost nothing.
//
//	conn, err := fabric.Dial(ctx, addr, gpurdma.Config{})
//	traced := spans.Wrap(conn, nil)
//	err = traced.Write(ctx, remote, buffer.All())
//
// A span is named by its call ("gpurdma write") and has the attributes gpurdma.nics (the names of the
// connection's NICs) and gpurdma.bytes. A call that fails records its error, whose text may have the
// address of the peer.
//
// Change it to give spans another attribute, or to wrap another call.
package spans
