// SPDX-License-Identifier: Apache-2.0

// Package throttle bounds the lines that a program prints about what others cause: a port scanner causes many
// more than a person reads. Change it to print more or fewer.
package throttle
