// SPDX-License-Identifier: Apache-2.0

// Package mrnumbers finds the numbers that the kernel gives to MRs.
//
// Change it when the kernel's answer has another form.
package mrnumbers
