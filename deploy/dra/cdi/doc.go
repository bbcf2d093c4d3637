// SPDX-License-Identifier: Apache-2.0

// Package cdi writes what a container's runtime gives to the containers of a claim: device files and
// variables, as the Container Device Interface has them. To give a container one more thing, change it.
package cdi
