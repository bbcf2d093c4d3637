// SPDX-License-Identifier: Apache-2.0

// Package serve is the subcommand serve: it accepts clients, and answers the requests of the one that has the
// buffer. To answer another request, change this package.
package serve
