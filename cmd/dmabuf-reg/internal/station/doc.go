// SPDX-License-Identifier: Apache-2.0

// Package station is one side of a connection: memory, NICs that have registered it, and the endpoints that
// connect. To register a side's memory, or to protect the exchange, in another way, change this package.
package station
