// SPDX-License-Identifier: Apache-2.0

// Package flap cuts the links of NICs, one after the other, and mends them. To cut a link in another way, or
// to refuse to cut one, change this package.
package flap
