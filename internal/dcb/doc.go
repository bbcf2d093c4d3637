// SPDX-License-Identifier: Apache-2.0

// Package dcb asks network devices how they are configured for Data Center
// Bridging, by rtnetlink. The numbers are those of include/uapi/linux/dcbnl.h.
//
// To read another attribute of DCB, add it to pfc.go.
package dcb
