// SPDX-License-Identifier: Apache-2.0

// Package register is the subcommand register: one range of a buffer is registered, once or many times,
// as long as there is memory for it. To add a parameter of a registration, change this package.
package register
