// SPDX-License-Identifier: Apache-2.0

// Package options has the values of flags that several subcommands take, and what a shell completes for
// them. To add an access flag or a registration route, change this package.
package options
