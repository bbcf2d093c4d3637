// SPDX-License-Identifier: Apache-2.0

// Package report writes the file of verify --report: a machine and what verify found there, without what
// tells the machine from others. To take something else out, or to add a fact of the machine, change
// this package.
package report
