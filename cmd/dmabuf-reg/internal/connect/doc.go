// SPDX-License-Identifier: Apache-2.0

// Package connect is the subcommand connect: a plan of trials, carried out once or again and again. To plan
// other trials, or to show rails in another way, change this package.
package connect
