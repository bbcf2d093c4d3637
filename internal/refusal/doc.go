// SPDX-License-Identifier: Apache-2.0

// Package refusal picks the cause of a refused dma-buf registration, where one
// errno has several, by evidence: the exporter's name, the machine's drivers, their
// versions and parameters, the other devices that have the buffer attached.
//
// A rule of a driver is added to the file of that driver, with the function it
// comes from. Where the evidence picks no cause, the finding says which causes are
// possible and how to learn more.
package refusal
